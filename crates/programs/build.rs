//! Hands the generated list of MPI functions to `outboard info`, empty as long as the generator has not written one.

fn main() {
    let list = "../abi/src/generated/functions.txt";
    println!("cargo:rerun-if-changed={list}");
    let text = std::fs::read_to_string(list).unwrap_or_default();
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(format!("{folder}/functions.txt"), text).expect("cargo's folder can be written");
}
