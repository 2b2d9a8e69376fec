// SPDX-License-Identifier: Apache-2.0
//! Response times of periodic tasks with fixed priorities: the recurrence of the paper, and a
//! schedule computed step by step.

use super::paper;

/// A periodic task; all times are whole numbers in one unit.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// P: time between releases, which is also the deadline.
    pub period: u64,
    /// C: execution time.
    pub execution: u64,
    /// B: maximum time for which a task of lower priority blocks it.
    pub blocking: u64,
    /// J: maximum delay of its release.
    pub jitter: u64,
}

/// Returns the paper's four tasks in milliseconds, highest priority first, without blocking or
/// jitter.
pub fn tasks() -> [Task; 4] {
    std::array::from_fn(|index| Task {
        period: paper::TASK_PERIODS_MS[index],
        execution: paper::TASK_EXECUTIONS_MS[index],
        blocking: 0,
        jitter: 0,
    })
}

/// Returns the worst-case response times on one core, for tasks in order of priority: the least `R
/// = C + B + sum of ceil((R + J_j) / P_j) C_j` over tasks j of higher priority (equation 1 of the
/// paper). `None` for a task whose R exceeds its period, where the equation does not hold.
pub fn responses(tasks: &[Task]) -> Vec<Option<u64>> {
    let of = |index: usize| response(&tasks[index], &tasks[..index]);
    (0..tasks.len()).map(of).collect()
}

fn response(task: &Task, higher: &[Task]) -> Option<u64> {
    let mut response = task.execution + task.blocking;
    while response <= task.period {
        let from =
            |other: &Task| (response + other.jitter).div_ceil(other.period) * other.execution;
        let next = task.execution + task.blocking + higher.iter().map(from).sum::<u64>();
        if next == response {
            return Some(response);
        }
        response = next;
    }
    None
}

/// Maximum times of a task's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Longest {
    /// Time from release to end.
    pub from_release: u64,
    /// Time from first execution to end.
    pub from_start: u64,
}

struct Job {
    task: usize,
    released: u64,
    started: Option<u64>,
    left: u64,
}

/// Computes the schedule of tasks, given in order of priority, on `cores` cores: in steps of one unit up
/// to `end`, with the first release of each task in `offsets`. Returns the longest times of each task.
pub fn schedule(tasks: &[Task], offsets: &[u64], cores: usize, end: u64) -> Vec<Longest> {
    let mut longest = vec![Longest::default(); tasks.len()];
    let mut jobs: Vec<Job> = Vec::new();
    for now in 0..end {
        for (task, (parameters, offset)) in tasks.iter().zip(offsets).enumerate() {
            if now >= *offset && (now - offset).is_multiple_of(parameters.period) {
                let left = parameters.execution;
                jobs.push(Job { task, released: now, started: None, left });
            }
        }
        jobs.sort_by_key(|job| (job.task, job.released));
        for job in jobs.iter_mut().take(cores) {
            let started = *job.started.get_or_insert(now);
            job.left -= 1;
            if job.left == 0 {
                let longest = &mut longest[job.task];
                longest.from_release = longest.from_release.max(now + 1 - job.released);
                longest.from_start = longest.from_start.max(now + 1 - started);
            }
        }
        jobs.retain(|job| job.left > 0);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hyperperiods.
    const END: u64 = 160;

    fn longest(offsets: [u64; 4], cores: usize, of: fn(&Longest) -> u64) -> Vec<u64> {
        schedule(&tasks(), &offsets, cores, END).iter().map(of).collect()
    }

    #[test]
    fn the_recurrence_matches_a_schedule_with_a_common_release() {
        let wanted = [3, 8, 29, 79];
        assert_eq!(responses(&tasks()), wanted.map(Some));
        assert_eq!(longest([0; 4], 1, |it| it.from_release), wanted);
    }

    #[test]
    fn the_published_times_start_at_the_first_execution() {
        let published = paper::RESPONSES_MS.map(|ms| ms as u64);
        assert_eq!(longest([0; 4], 1, |it| it.from_start), published);
        // Each published time is the difference of two results of the recurrence.
        let responses: Vec<u64> = responses(&tasks()).into_iter().flatten().collect();
        for (index, published) in published.iter().enumerate().skip(1) {
            assert_eq!(responses[index] - responses[index - 1], *published);
        }
    }

    #[test]
    fn a_release_at_the_end_of_the_previous_task_gives_the_published_times() {
        let published = paper::RESPONSES_MS.map(|ms| ms as u64);
        assert_eq!(longest([0, 3, 8, 29], 1, |it| it.from_release), published);
    }

    #[test]
    fn on_two_cores_the_responses_are_shorter() {
        assert_eq!(longest([0; 4], 2, |it| it.from_release), [3, 5, 13, 26]);
    }

    #[test]
    fn blocking_and_jitter_lengthen_responses() {
        let mut tasks = tasks();
        tasks[0].blocking = 2;
        assert_eq!(responses(&tasks)[0], Some(5));
        tasks[0].jitter = 3;
        // 5 + 3 exceeds 7, the end of the first period with jitter.
        assert_eq!(responses(&tasks)[1], Some(11));
    }

    #[test]
    fn a_task_that_misses_its_deadline_has_no_response() {
        let mut tasks = tasks();
        tasks[3].execution = 17;
        assert_eq!(responses(&tasks)[3], None);
    }
}
