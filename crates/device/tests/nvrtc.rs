// SPDX-License-Identifier: BSD-3-Clause
//! Tests whether NVRTC compiles the kernels. `tests/kernels` runs this test with NVIDIA's wheel.

use outboard_device::compiler::{Compiler, NVRTC};
use outboard_device::kernel::SOURCE;

fn nvrtc() -> Compiler {
    Compiler::load(&NVRTC, &std::env::var("TEST_NVRTC").expect("TEST_NVRTC names libnvrtc.so")).unwrap()
}

// Goal: NVRTC makes PTX with the kernels' entries for each generation of devices; an error has the compiler's
// text.
#[test]
#[ignore = "needs NVRTC; tests/kernels fetches it"]
fn nvrtc_compiles_the_kernels() {
    let nvrtc = nvrtc();
    for architecture in ["compute_75", "compute_80", "compute_90", "compute_100"] {
        let ptx = nvrtc.compile(SOURCE, architecture, None).unwrap();
        assert_eq!(ptx.last(), Some(&0), "{architecture}: cuModuleLoadData needs a zero byte at the end");
        let ptx = String::from_utf8(ptx).unwrap();
        assert!(ptx.contains(".entry outboard_move("), "{architecture}: {ptx}");
        assert!(ptx.contains(".entry outboard_sum_f32("), "{architecture}: {ptx}");
        // The kernel must move 16 bytes at a time through registers.
        assert!(ptx.contains("ld.v2.u64") && !ptx.contains(".local"), "{architecture}: {ptx}");
        assert!(
            ptx.contains(&format!(".target {}", architecture.replace("compute", "sm"))),
            "{architecture}"
        );
    }
    let error = nvrtc.compile(c"int wrong(", "compute_80", None).unwrap_err();
    assert!(error.message.contains("COMPILATION") && error.message.contains("kernels.cu(1)"), "{error:?}");
}

// Goal: output is found again in the cache, one file for each source and device; a damaged file is made anew;
// output that cannot be compiled or stored leaves no file.
#[test]
#[ignore = "needs NVRTC; tests/kernels fetches it"]
fn what_nvrtc_made_is_kept() {
    let (nvrtc, folder) =
        (nvrtc(), std::env::temp_dir().join(format!("outboard-nvrtc-{}", std::process::id())));
    let files =
        || -> Vec<_> { std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect() };
    let source = c"extern \"C\" __global__ void kept(int *to) { *to = 1; }";
    let compile = |source, architecture| nvrtc.compile(source, architecture, Some(&folder));
    let made = compile(source, "compute_80").unwrap();
    let [file] = &files()[..] else { panic!("one file: {:?}", files()) };
    let whole = std::fs::read(file).unwrap();
    assert!(whole.ends_with(&made));
    // Other output with a fitting check word shows that the file is read.
    let other = compile(c"extern \"C\" __global__ void other() {}", "compute_80").unwrap();
    let others = files().into_iter().find(|path| path != file).unwrap();
    std::fs::copy(&others, file).unwrap();
    assert!(compile(source, "compute_80").unwrap() == other, "it was compiled again");
    std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
    assert!(compile(source, "compute_80").unwrap() == made, "a damaged file was believed");
    assert!(std::fs::read(file).unwrap() == whole, "a damaged file stays");
    compile(source, "compute_90").unwrap();
    assert_eq!(files().len(), 3);
    assert!(compile(c"int wrong(", "compute_80").is_err());
    assert_eq!(files().len(), 3);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "no folder").unwrap();
    assert!(compile(source, "compute_80").unwrap() == made, "a folder that cannot be made");
    std::fs::remove_file(&folder).unwrap();
}
