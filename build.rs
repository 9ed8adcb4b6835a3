//! Compiles the CUDA kernels for the host under the feature `cuda-host`; nothing else needs a C++ compiler.
//!
//! Without a C++20 compiler it warns and leaves `cfg(pp_cuda_host)` unset: the subject then skips
//! every case with the compiler's words as the reason. Where there is one and the kernels do not compile, the tests fail.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(pp_cuda_host)");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cuda-host")]
    host::compile();
}

#[cfg(feature = "cuda-host")]
mod host {
    /// Every kernel source: cargo runs the script again when one changes.
    const SOURCES: &str = "kernels";

    pub(super) fn compile() {
        println!("cargo::rerun-if-changed={SOURCES}");
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++20")
            // The tests compute whole layers; contraction would fuse what a device does not.
            .opt_level(2)
            .flag("-ffp-contract=off")
            .flag("-fno-strict-aliasing")
            .flag_if_supported("-ftls-model=initial-exec")
            .define("PP_FAULTS", None)
            .files([
                "kernels/host/api.cpp",
                "kernels/host/far.cpp",
                "kernels/host/fibers.cpp",
            ]);
        // fmaf is a call without these; the subject asks for them again when it runs.
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            build.flag("-mavx2").flag("-mfma");
            println!("cargo::rustc-env=PP_CUDA_HOST_VECTORS=avx2+fma");
        }
        if let Err(error) = probe() {
            missing(&format!("no C++20 compiler: {error}"));
        } else if let Err(error) = build.try_compile("padproof_cuda_host") {
            // Said as such: tests that skip without a compiler fail at this.
            missing(&format!("the kernels do not compile: {error}"));
            println!("cargo::rustc-env=PP_CUDA_HOST_BROKEN=1");
        } else {
            println!("cargo::rustc-cfg=pp_cuda_host");
        }
    }

    fn missing(why: &str) {
        let why = why.replace(['\n', '\r'], " ");
        println!("cargo::warning=the subject cuda-host will skip: {why}");
        println!("cargo::rustc-env=PP_CUDA_HOST_MISSING={why}");
    }

    /// Whether there is a compiler that knows what the kernels are written in.
    fn probe() -> Result<(), String> {
        let folder = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
        let file = std::path::Path::new(&folder).join("probe.cpp");
        std::fs::write(&file, "#include <vector>\nextern constinit thread_local int of_probe;\nconstinit thread_local int of_probe = 0;\n")
            .map_err(|error| error.to_string())?;
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++20")
            .cargo_metadata(false)
            .file(file);
        build
            .try_compile("padproof_probe")
            .map_err(|error| error.to_string())
    }
}
