//! Both products by tensor cores: exact sums, bit for bit, and how a device adds others.

use super::{cuda, device, host};
use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::pack_layer;
use padproof::num::Dtype;
use padproof::plan::plan;
use padproof::property::{Tier, Trial, Verdict, find};
use padproof::subject::{Adder, Cuda, CudaHost, HostOptions, KernelOptions, Paths, Subject};
use padproof::terms::WeightFormat;

/// Both products by mma.sync: bfloat16 inputs and a bfloat16 intermediate, in every format whose codes are
/// bfloat16. Exact sums have one answer, however a tensor core adds; values with other sums show that it was one.
#[test]
fn exact_sums_by_tensor_cores_have_the_bits_of_the_same_source_on_the_cpu() {
    if !device() || !host() {
        return;
    }
    let identity = find("pad-identity").expect("it is listed");
    for &w in WeightFormat::ALL {
        if matches!(w.element(), Dtype::F32 | Dtype::F16) {
            continue;
        }
        let mut exact = 0;
        for act in ["relu", "identity"] {
            for (h, i) in [(48, 40), (96, 100)] {
                let line = format!(
                    "t=7,e=4,h={h},i={i},act={act},route=given,w={w},mid=bf16,pad=h64.i32,fill=exact"
                );
                let case: Case = line.parse().expect("a case line");
                let verdict = (identity.check)(&case, &mut Trial::new(&mut CudaHost::new()));
                if verdict != Verdict::Pass(Tier::Exact) {
                    continue;
                }
                let plan = plan(&case).expect("it is planned");
                let packed = pack_layer(&plan, &fill(&case).expect("it is filled"));
                let packed = packed.expect("it is laid out");
                let wanted = CudaHost::new().run(&plan, &packed).expect("it runs");
                for paths in [Paths::Auto, Paths::General] {
                    let options = KernelOptions {
                        paths,
                        ..KernelOptions::default()
                    };
                    let mut subject = cuda(options);
                    let actual = subject.run(&plan, &packed).expect("it runs");
                    by_tensor_core(&subject);
                    assert!(same_bits(&wanted, &actual).agree, "{line} {paths:?}");
                }
                exact += 1;
            }
        }
        assert!(exact >= 2, "{w}: {exact} exact cases");
    }
}

/// Both products were given bfloat16 rows: with weights whose codes are such, that is mma.sync.
fn by_tensor_core(subject: &Cuda) {
    let inputs = subject.launched().iter().map(|launch| launch.inputs);
    let inputs: Vec<Dtype> = inputs.collect();
    assert!(!inputs.is_empty());
    assert!(
        inputs.iter().all(|dtype| *dtype == Dtype::Bf16),
        "{inputs:?}"
    );
}

/// How this device adds, told by bits: kernels/host/mma.h says what was found of others. It is said, not asked:
/// what no manual states cannot fail a device.
#[test]
fn which_tensor_core_the_device_adds_like_is_told() {
    if !device() || !host() {
        return;
    }
    let case: Case = "t=33,e=4,h=256,i=200,act=relu,route=given,w=bf16,mid=bf16,pad=i64,fill=wild"
        .parse()
        .expect("a case line");
    let plan = plan(&case).expect("it is planned");
    let mut logical = fill(&case).expect("it is filled");
    for v in logical.x.f32s_mut() {
        *v = f32::from_bits(v.to_bits() & 0xffff_0000);
    }
    let packed = pack_layer(&plan, &logical).expect("it is laid out");
    let mut subject = cuda(KernelOptions::default());
    let actual = subject.run(&plan, &packed).expect("it runs");
    by_tensor_core(&subject);
    let like = [Adder::Chain, Adder::AMPERE, Adder::HOPPER].map(|adder| {
        let options = HostOptions {
            adder,
            ..HostOptions::default()
        };
        let host = CudaHost::with(options)
            .run(&plan, &packed)
            .expect("it runs");
        let found = same_bits(&host, &actual);
        (adder, found.differing)
    });
    println!(
        "elements of {} that differ from each way of adding: {like:?}",
        actual.values.len()
    );
    // No tensor core adds as a chain does: bits like that would be another engine's.
    let chain = like.iter().find(|(adder, _)| *adder == Adder::Chain);
    assert!(chain.is_some_and(|(_, n)| *n > 0), "{like:?}");
    if Cuda::facts().is_ok_and(|facts| facts.name == "emulated") {
        assert!(
            like.iter()
                .any(|(adder, n)| *adder == Adder::HOPPER && *n == 0),
            "{like:?}"
        );
        assert!(
            like.iter()
                .all(|(adder, n)| *adder == Adder::HOPPER || *n > 0),
            "{like:?}"
        );
    }
}
