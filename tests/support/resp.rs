//! RESP, the protocol of Redis, as far as a test needs it to inspect a server and to act as a foreign client.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    Array(Vec<Value>),
}

impl Value {
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("a number was expected, not {other:?}"),
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    pub fn texts(self) -> Vec<String> {
        match self {
            Self::Array(values) => values.into_iter().map(Self::text).collect(),
            other => panic!("an array was expected, not {other:?}"),
        }
    }
}

/// Runs one command on its own connection.
pub fn command(socket: &Path, words: &[&str]) -> io::Result<Value> {
    command_over(&UnixStream::connect(socket)?, words)
}

/// Runs one command on a connection that is kept.
pub fn command_over(stream: &UnixStream, words: &[&str]) -> io::Result<Value> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        write!(request, "${}\r\n{word}\r\n", word.len())?;
    }
    let mut writer = stream;
    writer.write_all(&request)?;
    answer(&mut BufReader::new(stream))
}

fn answer(reader: &mut impl BufRead) -> io::Result<Value> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {line:?}"));
    let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
    let number = || rest.parse::<i64>().map_err(|_| malformed());
    Ok(match kind {
        "+" => Value::Text(rest.into()),
        "-" => Value::Error(rest.into()),
        ":" => Value::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => Value::Nil,
            Ok(length) => Value::Array((0..length).map(|_| answer(reader)).collect::<Result<_, _>>()?),
        },
        _ => return Err(malformed()),
    })
}
