//! Cutting received bytes into lines, without ever holding much more than one line and one receive.

/// The longest line that either side of the front protocol accepts, its end not counted: a value of the upstream with
/// the words around it.
pub const MAX_LINE: usize = crate::resp::MAX_BULK + 1024;

/// The peer has sent more than [`MAX_LINE`] bytes without a line end. Where the next line begins is then anybody's
/// guess, so the connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {MAX_LINE} bytes")]
pub struct TooLong;

/// Received bytes that are yet to be read as lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    read: usize,
}

impl Lines {
    /// Adds received bytes. Take all complete lines before the next call, so that the buffer stays small.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line without its end, LF or CR LF; `None` when its end has not arrived yet.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let rest = &self.buffer[self.read..];
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else {
            return if rest.len() > MAX_LINE { Err(TooLong) } else { Ok(None) };
        };
        self.read += len + 1;
        let line = &rest[..len];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE { Err(TooLong) } else { Ok(Some(line)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        for size in 1..12 {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for piece in b"one\r\n\ntwo words\nunfinished".chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next_line().expect("short lines") {
                    got.push(line.to_vec());
                }
            }
            assert_eq!(got, [b"one".as_slice(), b"", b"two words"]);
        }
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let mut lines = Lines::default();
        lines.push(&[b'a'; MAX_LINE]);
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"\n");
        assert_eq!(lines.next_line().map(|line| line.map(<[u8]>::len)), Ok(Some(MAX_LINE)));
        lines.push(&[b'a'; MAX_LINE + 1]);
        assert_eq!(lines.next_line(), Err(TooLong));
    }
}
