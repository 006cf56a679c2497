//! The engine: AF_XDP's copy path in user space.
//!
//! It gives what the kernel gives (`crate::uapi`): sockets, their options, bind, the transmit and the receive path, waits.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `table` | descriptor numbers to sockets |
//! | `socket` | the state machine from `socket` to `close` |
//! | `memory`, `stat` | a socket's rings and its page of counters |
//! | `umem` | a registered area and the checks of places in it |
//! | `pool` | fill and completion ring of one (interface, queue, UMEM) |
//! | `transmit`, `receive` | the two paths |
//! | `bell`, `worker` | readiness of the descriptor; the thread for programs that make no call we see |
//! | `iface` | interfaces, their queues and who receives there; stand-in socket maps |
//! | `runtime`, `owner` | what a process has once; which process that is |
//! | `provider` | the engine as a provider |

mod bell;
mod iface;
mod memory;
mod owner;
mod pool;
mod provider;
mod receive;
mod runtime;
mod socket;
pub mod stat;
mod table;
mod transmit;
mod umem;
mod worker;

pub use iface::{Interface, interface_named, interface_numbered, is_map, map_update};
pub use provider::{provider, raw_socket};
pub use runtime::{any_umem, memory_going};
pub use socket::{BusyPoll, Socket};
pub(crate) use table::InternalFd;
pub use table::{SocketRef, any_socket, duplicate, forget, is_internal, lookup, lookup_verified, maybe_ours, suspect};
