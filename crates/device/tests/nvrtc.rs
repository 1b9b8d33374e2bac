//! Whether NVRTC compiles the kernels: `tests/kernels` runs this with NVIDIA's wheel.

use outboard_device::Nvrtc;
use outboard_device::kernel::SOURCE;

// Goal: PTX with the kernel's entry for each generation of devices, and an error says what the compiler says.
#[test]
#[ignore = "needs NVRTC; tests/kernels fetches it"]
fn nvrtc_compiles_the_kernels() {
    let file = std::env::var("TEST_NVRTC").expect("TEST_NVRTC names libnvrtc.so");
    let nvrtc = Nvrtc::load(&file).unwrap();
    for architecture in ["compute_75", "compute_80", "compute_90", "compute_100"] {
        let ptx = nvrtc.compile(SOURCE, architecture).unwrap().into_string().unwrap();
        assert!(ptx.contains(".entry outboard_move("), "{architecture}: {ptx}");
        assert!(ptx.contains(".entry outboard_sum_f32("), "{architecture}: {ptx}");
        // The program's bytes go through registers, 16 at a time.
        assert!(ptx.contains("ld.v2.u64") && !ptx.contains(".local"), "{architecture}: {ptx}");
        assert!(
            ptx.contains(&format!(".target {}", architecture.replace("compute", "sm"))),
            "{architecture}"
        );
    }
    let error = nvrtc.compile(c"int wrong(", "compute_80").unwrap_err();
    assert!(error.message.contains("COMPILATION") && error.message.contains("kernels.cu(1)"), "{error:?}");
}
