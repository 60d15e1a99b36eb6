//! What the doctor says.

use std::{fmt::Write as _, time::Duration};

use lock_runtime::{
    __private::json,
    backend::{Examined, Finding, FindingCode, ServerReport, Severity},
};

use super::trial::Proof;
use crate::style::{Style, clean};

/// What was found, and what the trial has proved.
pub(super) struct Report {
    pub(super) examined: Examined,
    pub(super) proofs: Vec<Proof>,
}

impl Report {
    /// Returns the report without findings of these codes.
    pub(super) fn without(mut self, ignored: &[FindingCode]) -> Self {
        let findings = &mut self.examined.findings;
        findings.retain(|finding| !ignored.contains(&finding.code));
        findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.code));
        self
    }

    pub(super) fn has_danger(&self) -> bool {
        has_danger(&self.examined)
    }

    pub(super) fn in_words(&self, style: Style) -> String {
        let mut text = String::new();
        for server in &self.examined.servers {
            let _ = writeln!(text, "{}", style.strong(&clean(&server.server)));
            for (name, value) in lines(server) {
                let _ = writeln!(text, "  {:<20} {}", clean(&name), clean(&value));
            }
        }
        for (number, proof) in self.proofs.iter().enumerate() {
            let name = if number == 0 { style.strong("tried") } else { "     ".to_owned() };
            let _ = writeln!(text, "{name}  {proof}");
        }
        for finding in &self.examined.findings {
            let _ = writeln!(text, "{}", in_words(finding, style));
        }
        if self.examined.findings.is_empty() {
            text.push_str("nothing found\n");
        }
        text
    }

    /// Returns a line for each server, and then one for each finding.
    pub(super) fn in_json(&self) -> String {
        let mut text = String::new();
        for server in &self.examined.servers {
            of_server(&mut text, server);
        }
        for finding in &self.examined.findings {
            of_finding(&mut text, finding);
        }
        text
    }
}

/// Returns whether a finding is a danger.
pub(super) fn has_danger(examined: &Examined) -> bool {
    examined.findings.iter().any(|finding| finding.severity >= Severity::Danger)
}

fn in_words(finding: &Finding, style: Style) -> String {
    let severity = match finding.severity {
        Severity::Danger => style.bad("danger"),
        _ => style.warning(finding.severity.name()),
    };
    let mut text = format!("{severity} {}", style.strong(finding.code.name()));
    if let Some(server) = &finding.server {
        let _ = write!(text, " at {}", clean(server));
    }
    let _ = write!(text, "\n  {}", clean(&finding.message));
    if !finding.remedy.is_empty() {
        let _ = write!(text, "\n  remedy: {}", clean(&finding.remedy));
    }
    text
}

fn lines(server: &ServerReport) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line =
        |name: &str, value: Option<String>| lines.extend(value.map(|value| (name.to_owned(), value)));
    line("version", server.version.clone());
    line("role", server.role.clone());
    let trips = server.round_trips.map(|trips| {
        format!("{} (from {} to {})", millis(trips.median), millis(trips.min), millis(trips.max))
    });
    line("round trip", trips);
    let clock = server.clock.map(|clock| match (clock.at_least.as_secs_f64(), clock.is_ahead) {
        (0.0, _) => "as of this machine".to_owned(),
        (seconds, true) => format!("{seconds:.3} s ahead of this machine"),
        (seconds, false) => format!("{seconds:.3} s behind this machine"),
    });
    line("clock", clock);
    lines.extend(server.facts.iter().cloned());
    lines
}

fn millis(length: Duration) -> String {
    format!("{:.2} ms", length.as_secs_f64() * 1e3)
}

fn of_server(json: &mut String, server: &ServerReport) {
    json.push_str(r#"{"server":"#);
    json::text(json, Some(&server.server));
    json.push_str(r#","version":"#);
    json::text(json, server.version.as_deref());
    json.push_str(r#","role":"#);
    json::text(json, server.role.as_deref());
    match server.round_trips {
        None => json.push_str(r#","round_trip_seconds":null"#),
        Some(trips) => {
            let [min, median, max] = [trips.min, trips.median, trips.max].map(|trip| trip.as_secs_f64());
            let _ = write!(
                json,
                r#","round_trip_seconds":{{"min":{min:.6},"median":{median:.6},"max":{max:.6}}}"#
            );
        }
    }
    match server.clock {
        None => json.push_str(r#","clock_ahead_seconds":null"#),
        Some(clock) => {
            let seconds = clock.at_least.as_secs_f64();
            let sign = if clock.is_ahead || seconds == 0.0 { "" } else { "-" };
            let _ = write!(json, r#","clock_ahead_seconds":{sign}{seconds:.3}"#);
        }
    }
    json.push_str(r#","facts":{"#);
    for (number, (name, value)) in server.facts.iter().enumerate() {
        if number > 0 {
            json.push(',');
        }
        json::text(json, Some(name));
        json.push(':');
        json::text(json, Some(value));
    }
    json.push_str("}}\n");
}

fn of_finding(json: &mut String, finding: &Finding) {
    json.push_str(r#"{"finding":"#);
    json::text(json, Some(finding.code.name()));
    json.push_str(r#","severity":"#);
    json::text(json, Some(finding.severity.name()));
    json.push_str(r#","server":"#);
    json::text(json, finding.server.as_deref());
    json.push_str(r#","message":"#);
    json::text(json, Some(&finding.message));
    json.push_str(r#","remedy":"#);
    json::text(json, Some(&finding.remedy).filter(|remedy| !remedy.is_empty()).map(String::as_str));
    json.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use lock_runtime::backend::ClockOffset;

    use super::*;

    fn report() -> Report {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let clock = ClockOffset::between(moment, moment - Duration::from_secs(40), moment);
        let server = ServerReport::new("h:1")
            .with_version(Some("Redis 7.0.15".into()))
            .with_fact("appendfsync", Some("every\x1bsec"))
            .with_fact("unknown", None::<String>)
            .with_round_trips(&[1, 2, 3].map(Duration::from_millis))
            .with_clock(Some(clock));
        let mut examined = Examined::default();
        examined.servers = vec![server, ServerReport::new("h:2")];
        examined.findings = vec![
            Finding::warning(FindingCode::Clock, "it is late", "set it").at("h:1"),
            Finding::danger(FindingCode::Exclusion, "a \"quote\"", ""),
        ];
        Report { examined, proofs: vec![Proof::Acquired] }
    }

    #[test]
    fn a_report_in_words_begins_with_the_servers_and_ends_with_the_findings() {
        assert_eq!(
            report().without(&[]).in_words(Style::Plain),
            "h:1\n  version              Redis 7.0.15\n  \
             round trip           2.00 ms (from 1.00 ms to 3.00 ms)\n  \
             clock                40.000 s behind this machine\n  \
             appendfsync          every\u{fffd}sec\nh:2\ntried  a lock was acquired\n\
             danger exclusion\n  a \"quote\"\nwarning clock at h:1\n  it is late\n  remedy: set it\n"
        );
        assert!(report().in_words(Style::Coloured).contains("\x1b[1;31mdanger\x1b[0m"));
        let nothing = report().without(&[FindingCode::Clock, FindingCode::Exclusion]);
        assert!(nothing.in_words(Style::Plain).ends_with("\nnothing found\n") && !nothing.has_danger());
    }

    #[test]
    fn a_report_in_json_has_a_line_for_each_server_and_finding() {
        assert_eq!(
            report().without(&[]).in_json(),
            concat!(
                r#"{"server":"h:1","version":"Redis 7.0.15","role":null,"#,
                r#""round_trip_seconds":{"min":0.001000,"median":0.002000,"max":0.003000},"#,
                r#""clock_ahead_seconds":-40.000,"facts":{"appendfsync":"every\u001bsec"}}"#,
                "\n",
                r#"{"server":"h:2","version":null,"role":null,"round_trip_seconds":null,"#,
                r#""clock_ahead_seconds":null,"facts":{}}"#,
                "\n",
                r#"{"finding":"exclusion","severity":"danger","server":null,"message":"a \"quote\"","remedy":null}"#,
                "\n",
                r#"{"finding":"clock","severity":"warning","server":"h:1","message":"it is late","remedy":"set it"}"#,
                "\n",
            )
        );
    }

    #[test]
    fn ignored_dangers_are_none() {
        assert!(report().without(&[FindingCode::Clock]).has_danger());
        assert!(!report().without(&[FindingCode::Exclusion]).has_danger());
    }
}
