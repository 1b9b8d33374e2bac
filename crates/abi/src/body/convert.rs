// SPDX-License-Identifier: BSD-3-Clause
//! Conversions of handles to C ints and back (MPI 5.0, section 20.3.4). Every handle is a positive int, so
//! both directions return their argument. Also conversions of statuses between the forms of C, `mpif.h` and
//! `mpi_f08` (section 19.3.5).

use crate::args::{Handle, StatusIn, StatusOut, convert};
use crate::process::Guard;
use error::Result;

/// MPI_Comm_toint
pub fn comm_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Comm_fromint
pub fn comm_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Errhandler_toint
pub fn errhandler_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Errhandler_fromint
pub fn errhandler_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_File_toint
pub fn file_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_File_fromint
pub fn file_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Group_toint
pub fn group_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Group_fromint
pub fn group_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Info_toint
pub fn info_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Info_fromint
pub fn info_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Message_toint
pub fn message_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Message_fromint
pub fn message_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Op_toint
pub fn op_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Op_fromint
pub fn op_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Request_toint
pub fn request_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Request_fromint
pub fn request_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Session_toint
pub fn session_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Session_fromint
pub fn session_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Type_toint
pub fn type_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Type_fromint
pub fn type_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Win_toint
pub fn win_toint(handle: Handle) -> i32 {
    handle.to_int()
}

/// MPI_Win_fromint
pub fn win_fromint(number: i32) -> Handle {
    Handle::from_int(number)
}

/// MPI_Status_c2f
pub fn status_c2f(_: &mut Guard, c_status: StatusIn, f_status: StatusOut) -> Result<()> {
    convert(c_status, f_status)
}

/// MPI_Status_c2f08
pub fn status_c2f08(_: &mut Guard, c_status: StatusIn, f08_status: StatusOut) -> Result<()> {
    convert(c_status, f08_status)
}

/// MPI_Status_f082c
pub fn status_f082c(_: &mut Guard, f08_status: StatusIn, c_status: StatusOut) -> Result<()> {
    convert(f08_status, c_status)
}

/// MPI_Status_f082f
pub fn status_f082f(_: &mut Guard, f08_status: StatusIn, f_status: StatusOut) -> Result<()> {
    convert(f08_status, f_status)
}

/// MPI_Status_f2c
pub fn status_f2c(_: &mut Guard, f_status: StatusIn, c_status: StatusOut) -> Result<()> {
    convert(f_status, c_status)
}

/// MPI_Status_f2f08
pub fn status_f2f08(_: &mut Guard, f_status: StatusIn, f08_status: StatusOut) -> Result<()> {
    convert(f_status, f08_status)
}
