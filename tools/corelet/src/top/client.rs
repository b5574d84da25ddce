//! The other end of the observer's socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use corelet::observer::protocol::{Actor, Answer, FORMAT, Hello, Overview, Question};

/// How long the process may take for a line. It gives its cores a second to answer, and makes one look at a time.
const PATIENCE: Duration = Duration::from_secs(15);

/// All that one look brings.
#[derive(Clone, Debug)]
pub struct Sample {
    pub hello: Hello,
    pub overview: Overview,
    pub actors: Vec<Actor>,
}

/// Why there is nothing to look at.
#[derive(Debug)]
pub enum Trouble {
    /// Nobody listens at the path.
    Nobody(io::Error),
    /// The process has ended, or has closed its observer.
    Ended {
        process: u32,
        program: String,
    },
    /// It does not answer.
    Silent,
    /// It has said no.
    Refused(String),
    /// It says things that mean something else.
    Format(u32),
    /// It speaks something else.
    Foreign(String),
    Io(io::Error),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Nobody(cause) => write!(f, "no process has opened an observer there ({cause})"),
            Trouble::Ended { process, program } => {
                write!(f, "{program} (process {process}) has ended, or has closed its observer")
            }
            Trouble::Silent => {
                write!(f, "no answer within {PATIENCE:?}; the core that serves the observer is busy")
            }
            Trouble::Refused(why) => write!(f, "refused: {why}"),
            Trouble::Format(theirs) => {
                write!(
                    f,
                    "the process speaks format {theirs}, and this command {FORMAT}; use the one of its version"
                )
            }
            Trouble::Foreign(line) => write!(f, "this is no observer; it says {line:?}"),
            Trouble::Io(cause) => cause.fmt(f),
        }
    }
}

pub struct Client {
    socket: BufReader<UnixStream>,
    hello: Hello,
}

impl Client {
    pub fn connect(path: &Path) -> Result<Client, Trouble> {
        let socket = UnixStream::connect(path).map_err(Trouble::Nobody)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(Trouble::Io)?;
        let mut socket = BufReader::new(socket);
        match hear(&mut socket)? {
            Some(Answer::Hello(hello)) if hello.format == FORMAT => Ok(Client { socket, hello }),
            Some(Answer::Hello(hello)) => Err(Trouble::Format(hello.format)),
            Some(Answer::Refused { why }) => Err(Trouble::Refused(why)),
            Some(other) => Err(Trouble::Foreign(format!("{other:?}"))),
            None => Err(Trouble::Nobody(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    pub fn sample(&mut self) -> Result<Sample, Trouble> {
        let question =
            serde_json::to_string(&Question::Snapshot).map_err(|error| Trouble::Io(error.into()))?;
        if self.socket.get_mut().write_all((question + "\n").as_bytes()).is_err() {
            return Err(self.ended());
        }
        let overview = match self.hear()? {
            Answer::Snapshot(overview) => overview,
            other => return Err(Trouble::Foreign(format!("{other:?}"))),
        };
        let mut actors = Vec::with_capacity(overview.actors);
        while actors.len() < overview.actors {
            match self.hear()? {
                Answer::Actors(rows) => actors.extend(rows),
                other => return Err(Trouble::Foreign(format!("{other:?}"))),
            }
        }
        Ok(Sample { hello: self.hello.clone(), overview, actors })
    }

    fn hear(&mut self) -> Result<Answer, Trouble> {
        match hear(&mut self.socket)? {
            Some(Answer::Refused { why }) => Err(Trouble::Refused(why)),
            Some(answer) => Ok(answer),
            None => Err(self.ended()),
        }
    }

    fn ended(&self) -> Trouble {
        Trouble::Ended { process: self.hello.process, program: self.hello.program.clone() }
    }
}

/// The next line; none when the other end is gone.
fn hear(socket: &mut BufReader<UnixStream>) -> Result<Option<Answer>, Trouble> {
    let mut line = String::new();
    match socket.read_line(&mut line) {
        Ok(0) => Ok(None),
        // The process ended in the middle of it.
        Ok(_) if !line.ends_with('\n') => Ok(None),
        Ok(_) => {
            serde_json::from_str(&line).map(Some).map_err(|_| Trouble::Foreign(line.trim_end().to_owned()))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Trouble::Silent),
        Err(error) => Err(Trouble::Io(error)),
    }
}
