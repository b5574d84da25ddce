//! Unix sockets: whom they let in, whose place they take, and that all cores serve them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use corelet::net::UnixStream;
use corelet::service::Server;
use corelet::service::server::{Address, Peer, StartError};

use crate::fixture::*;
use crate::support::{on_cores, poll_until, soon};

/// A directory that goes when the test does.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("corelet-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unix_server(path: &Path) -> Server<Lines> {
    Server::new(app(&Latch::default())).bind_unix(path)
}

#[test]
fn connections_of_a_unix_socket_go_round_the_cores() {
    on_cores(2, async move |runtime, _| {
        let place = Place::new("round");
        let server = soon(unix_server(&place.socket()).bind(loopback()).start(&runtime)).await.unwrap();
        assert_eq!(server.addresses()[0], Address::Unix(place.socket()));
        assert_ne!(server.local_addr().port(), 0);
        let mut clients = Vec::new();
        for number in 0..10 {
            let mut client = soon(UnixStream::connect(place.socket())).await.unwrap();
            let line = format!("echo {number}");
            talk(&mut client, &line, &line).await;
            clients.push(client);
        }
        let served: Vec<_> = server.stats().await.cores.iter().map(|core| core.open).collect();
        assert_eq!(served, [5, 5]);
        assert!(server.connections().await.iter().all(|connection| connection.peer == Peer::Unix));

        let mut tcp = connect(&server).await;
        talk(&mut tcp, "echo too", "echo too").await;
        soon(server.drain(crate::support::PATIENCE)).await.unwrap();
        assert!(!place.socket().exists(), "the file goes with the server");
    });
}

#[test]
fn only_what_the_dead_have_left_is_replaced() {
    on_cores(2, async move |runtime, _| {
        let place = Place::new("claims");
        drop(UnixListener::bind(place.socket()).unwrap());
        let first = soon(unix_server(&place.socket()).start(&runtime)).await.unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(place.socket()), 0o600);

        let second = soon(unix_server(&place.socket()).start(&runtime)).await.unwrap_err();
        assert!(
            matches!(&second, StartError::InUse { address } if *address == Address::Unix(place.socket()))
        );
        let mut client = soon(UnixStream::connect(place.socket())).await.unwrap();
        talk(&mut client, "echo still here", "echo still here").await;
        drop(first);
        poll_until(async || !place.socket().exists()).await;

        fs::write(place.socket(), "precious").unwrap();
        let third = soon(unix_server(&place.socket()).start(&runtime)).await.unwrap_err();
        assert!(matches!(third, StartError::NotASocket { .. }), "{third}");
        assert_eq!(fs::read(place.socket()).unwrap(), b"precious");
        let nowhere = soon(unix_server(Path::new("/no/such/place")).start(&runtime)).await.unwrap_err();
        assert!(nowhere.to_string().contains("the directory must exist"), "{nowhere}");

        let open = Server::new(app(&Latch::default())).bind_unix_with_mode(place.0.join("open"), 0o666);
        let open = soon(open.start(&runtime)).await.unwrap();
        let umask = 0o777 & !mode(place.0.join("open"));
        assert_eq!(umask & 0o600, 0);
        drop(open);
    });
}
