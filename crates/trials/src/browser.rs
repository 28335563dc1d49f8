//! Chromium without a window, told what to do over the DevTools protocol.
//!
//! The protocol goes over two pipes, so that no port is open:
//! <https://chromedevtools.github.io/devtools-protocol/>. Each message is JSON with a zero byte at
//! its end; an answer has the number of its command, an event none.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tidegate_measure::waiting::{PATIENCE, comes_true};

/// The program, and Debian's package of that name.
const PROGRAM: &str = "chromium-headless-shell";

/// Has the pipes of this process where the browser expects them.
const WITH_PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// Nothing but what tests ask for: no traffic of its own, no slower timers for pages that nobody
/// sees. Its sandbox refuses to run as root.
const OPTIONS: [&str; 10] = [
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
];

/// A browser with one page; it ends when dropped.
pub struct Browser {
    process: Child,
    /// None: it is about to end.
    commands: Option<ChildStdin>,
    heard: Receiver<Value>,
    /// The page, once there is one.
    session: Option<String>,
    commands_sent: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser with an empty page.
    pub fn begin() -> Browser {
        let found = Command::new(PROGRAM).arg("--version").output();
        found.unwrap_or_else(|error| panic!("{PROGRAM} (apt-get install {PROGRAM}): {error}"));
        let profile = tempfile::tempdir().expect("a folder for what is temporary");
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPES, "sh", PROGRAM]).args(OPTIONS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let (said, commands) = (process.stdout.take().expect("piped"), process.stdin.take());
        let (tell, heard) = channel();
        thread::spawn(move || {
            let messages = BufReader::new(said).split(0).map_while(Result::ok);
            // Nobody listens any more once the browser is dropped.
            for message in messages {
                let message = serde_json::from_slice(&message).expect("a message is JSON");
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser {
            process,
            commands,
            heard,
            session: None,
            commands_sent: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].take();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Shows the page at `url`, and waits until all of it is there.
    pub fn open(&mut self, url: &str) {
        let shown = self.call("Page.navigate", json!({"url": url}));
        assert!(shown["errorText"].is_null(), "{url}: {shown}");
        // The answer may come while the page before is still shown.
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'");
    }

    /// Has the browser carry out a command, and gives its answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.commands_sent += 1;
        let id = self.commands_sent;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let commands = self.commands.as_mut().expect("the browser has not ended");
        commands.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let mut heard = self.heard.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if heard["id"] == id {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].take();
            }
            self.events.push(heard);
        }
    }

    /// The value of an expression of JavaScript in the page. That of a promise is waited for.
    pub fn value_of(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let mut last = Value::Null;
        let came = comes_true(|| {
            last = self.value_of(expression);
            last == true
        });
        let text = self.value_of("document.body.innerText");
        assert!(came, "still waiting for {expression} after {PATIENCE:?}, which is {last}; the page: {text}");
    }

    /// Every address that the page asked for so far.
    pub fn requested(&self) -> Vec<String> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned)).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends where nobody can tell it anything any more.
        drop(self.commands.take());
        if !comes_true(|| !matches!(self.process.try_wait(), Ok(None))) {
            let _ = self.process.kill();
        }
    }
}
