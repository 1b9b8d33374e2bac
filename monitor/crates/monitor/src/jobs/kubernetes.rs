// SPDX-License-Identifier: BSD-3-Clause
//! MPIJobs of Kubernetes (kubeflow's MPI operator, v2beta1), by `kubectl get` with the kubeconfig that the
//! configuration names. Kubernetes knows no users, so the namespace is shown as the project. This file was
//! tested on a recorded output only, with no running Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::text::{JOBS_MAX, civil, words};
use crate::command::output_of;
use crate::job::Job;

/// The label with which kubeflow's MPI operator marks the pods of a job.
const LABEL: &str = "training.kubeflow.org/job-name";

pub fn jobs(kubeconfig: &Path) -> Result<Vec<Job>, String> {
    let get = |words: &[&str]| {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["get", "--all-namespaces", "-o", "json"])
            .args(words);
        output_of(&mut command, b"").unwrap_or(Err("kubectl is not installed".into()))
    };
    read(&get(&["mpijobs.kubeflow.org"])?, &get(&["pods", "-l", LABEL])?)
}

/// Reads two lists that `kubectl` printed: the MPIJobs, and the jobs' pods, which say on which nodes a job
/// runs.
fn read(jobs: &[u8], pods: &[u8]) -> Result<Vec<Job>, String> {
    let items = |text: &[u8]| -> Result<Vec<Value>, String> {
        let mut list: Value = serde_json::from_slice(text)
            .map_err(|error| format!("kubectl's list cannot be read: {error}"))?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err("kubectl prints no list".into()),
        }
    };
    let mut nodes: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for pod in items(pods)? {
        let (facts, node) = (&pod["metadata"], words(&pod["spec"]["nodeName"]));
        let is_worker = facts["labels"]["training.kubeflow.org/job-role"] != "launcher";
        if is_worker && !node.is_empty() {
            nodes
                .entry((words(&facts["namespace"]), words(&facts["labels"][LABEL])))
                .or_default()
                .insert(node);
        }
    }
    Ok(items(jobs)?.iter().take(JOBS_MAX).map(|job| described(job, &nodes)).collect())
}

fn described(job: &Value, nodes: &BTreeMap<(String, String), BTreeSet<String>>) -> Job {
    let (namespace, name) = (words(&job["metadata"]["namespace"]), words(&job["metadata"]["name"]));
    let status = &job["status"];
    // The last condition that is true is the state.
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let state = conditions.filter(|one| one["status"] == "True").map(|one| words(&one["type"])).next_back();
    let count = |value: &Value| value.as_u64().unwrap_or(1);
    let workers = &job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"];
    Job {
        // The id is the uid, because names are used again.
        id: words(&job["metadata"]["uid"]),
        source: "kubernetes",
        project: namespace.clone(),
        nodes: nodes.get(&(namespace, name.clone())).into_iter().flatten().cloned().collect(),
        name,
        ranks_count: count(workers).saturating_mul(count(&job["spec"]["slotsPerWorker"])).min(u32::MAX.into())
            as u32,
        state: state.map_or("PENDING".into(), |state| state.to_uppercase()),
        start: moment(&words(&status["startTime"])).unwrap_or(0),
        end: moment(&words(&status["completionTime"])),
        ..Job::default()
    }
}

/// Reads a time such as `2023-11-14T10:00:01Z`. Returns milliseconds since 1970, or None for a text of
/// another form.
fn moment(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let parts: Vec<u64> = date.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day] = parts[..] else { return None };
    civil(year, month, day, clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_kubectl_prints_is_read() {
        let jobs = r#"{"kind": "List", "items": [{"kind": "MPIJob", "metadata": {"name": "pi", "namespace": "cfd", "uid": "u-1"},
            "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 3}}},
            "status": {"startTime": "2023-11-14T10:00:01Z", "conditions": [{"type": "Created", "status": "True"},
                {"type": "Running", "status": "True"}, {"type": "Failed", "status": "False"}]}},
            {"metadata": {"name": "new", "namespace": "cfd", "uid": "u-2"}, "spec": {}}]}"#;
        let pod = |name: &str, role: &str, node: &str| {
            format!(
                r#"{{"metadata": {{"namespace": "cfd", "labels": {{"{LABEL}": "{name}", "training.kubeflow.org/job-role": "{role}"}}}},
                "spec": {{"nodeName": "{node}"}}}}"#
            )
        };
        let all = [
            pod("pi", "worker", "k2"),
            pod("pi", "worker", "k1"),
            pod("pi", "launcher", "k9"),
            pod("other", "worker", "k3"),
        ];
        let pods = format!(r#"{{"items": [{}]}}"#, all.join(","));
        let jobs = read(jobs.as_bytes(), pods.as_bytes()).unwrap();
        assert_eq!(
            (jobs[0].name.as_str(), jobs[0].project.as_str(), jobs[0].nodes.as_slice()),
            ("pi", "cfd", &["k1".to_string(), "k2".into()][..])
        );
        assert_eq!(
            (jobs[0].state.as_str(), jobs[0].ranks_count, jobs[0].start),
            ("RUNNING", 6, 1_699_956_001_000)
        );
        assert_eq!((jobs[1].state.as_str(), jobs[1].end), ("PENDING", None));
        assert!(read(b"{}", b"{}").is_err());
    }

    proptest! {
        #[test]
        fn no_time_is_too_odd(text in "[0-9TZ:-]{0,30}") {
            let _ = moment(&text);
        }
    }
}
