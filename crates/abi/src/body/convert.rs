//! Handles as C ints and back (MPI 5.0, section 20.3.4). Every handle is a positive int, so both ways are the
//! identity.

use crate::args::Handle;

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
