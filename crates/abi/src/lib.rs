//! Room abi.
