use padproof::r#gen::{Domain, draw};
use padproof::property::{Trial, find};
use padproof::subject::Cpu;
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn cpu() -> f64 { let s = std::fs::read_to_string("/proc/self/schedstat").unwrap(); s.split_whitespace().next().unwrap().parse::<f64>().unwrap()/1e9 }
fn main() {
    let which = std::env::args().nth(1).unwrap();
    let cases: Vec<_> = (0..512).map(|n| draw(&Domain::UNIFORM, 0xbe9c, n)).collect();
    let property = find("pad-identity").unwrap();
    let mut c = Cpu::default();
    let mut trial = Trial::new(&mut c);
    for _ in 0..6 {
        let s = cpu();
        for case in &cases {
            match which.as_str() {
                "all" => { (property.check)(case, &mut trial); }
                "fill" => { std::hint::black_box(padproof::fill::fill(case).unwrap()); }
                "ref" => { let l = padproof::fill::fill(case).unwrap(); std::hint::black_box(padproof::reference::reference(case, &l).unwrap()); }
                _ => {}
            }
        }
        println!("{} us/case cpu", (cpu()-s)*1e6/512.0);
    }
}
