use corelet::net::TcpStream;
use corelet::pool::{Lease, TcpConnector};

async fn smuggle(lease: &mut Lease<TcpConnector>) -> Option<&mut TcpStream> {
    let mut out = None;
    let _ = lease
        .exchange(async |stream| {
            out = Some(stream);
            Ok::<_, ()>(())
        })
        .await;
    out
}

fn main() {}
