use corelet::pool::{Handle, TcpConnector};

fn both(handle: Handle<TcpConnector>) -> [Handle<TcpConnector>; 2] {
    [handle.clone(), handle]
}

fn main() {}
