// SPDX-License-Identifier: BSD-3-Clause
//! Which process of the job runs on which cpus (hardware threads) of this host. Only the cpus count that
//! `mpirun` may use.

use sys::topology::Locality;

use super::binding::{Bind, Map};

/// A core: the cpu numbers of its hardware threads that we may use, at least one.
pub type Core = Vec<usize>;

/// The cpus on which each process of this host may run. A process with an empty list may run on any cpu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorePlan {
    /// The cpus of each rank, by its index among the ranks of this host.
    pub ranks: Vec<Vec<usize>>,
    /// The cpus of each proxy, by the proxy's index on this host.
    pub proxies: Vec<Vec<usize>>,
    /// Whether every process has a cpu that no other process needs. Only then does a process that waits spin.
    pub spin: bool,
    /// The cpus that the plan gives to proxies and bound ranks; the job claims their cores.
    pub taken: Vec<usize>,
    /// How many cores the unbound ranks want, whichever cores these are.
    pub anywhere: usize,
}

/// Returns the cores of this machine that we may use, in the order of each core's first hardware thread.
pub fn cores() -> Result<Vec<Core>, String> {
    let allowed = sys::cpu::allowed().map_err(|error| format!("cannot read our cpu set: {error}"))?;
    let mut cores: Vec<Core> = Vec::new();
    for &cpu in &allowed {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = std::fs::read_to_string(file).ok().and_then(|text| settings::list(text.trim()).ok());
        let siblings = siblings.unwrap_or_else(|| vec![cpu as u64]);
        match cores.iter_mut().find(|core| siblings.contains(&(core[0] as u64))) {
            Some(core) => core.push(cpu),
            None => cores.push(vec![cpu]),
        }
    }
    Ok(cores)
}

/// How many processes are to be placed on this host's cores, and what the user asks for.
#[derive(Clone, Copy, Default)]
pub struct Want<'a> {
    pub ranks: u32,
    pub proxies: u32,
    pub bind: Option<Bind>,
    pub map: Map,
    /// Whether each rank gets a hardware thread even if there is a whole core for each
    /// (`--use-hwthread-cpus`).
    pub threads: bool,
    /// The cpu numbers that the user names for proxies, or None if the user names no cpu.
    pub proxy_cores: Option<&'a [usize]>,
    /// How many cores we may use on this host, including those that other jobs have claimed.
    pub given: usize,
    /// Whether the cores that no other job has claimed are too few for this job.
    pub crowded: bool,
}

impl Want<'_> {
    /// Returns how many cores each rank gets, as the user asks.
    fn each(&self) -> usize {
        self.map.cores.max(self.bind.map_or(1, |bind| bind.cores)) as usize
    }

    /// Returns how many cores this host's ranks and proxies want all together.
    pub fn processes(&self) -> usize {
        self.ranks as usize * self.each() + self.proxies as usize
    }
}

/// Distributes ranks and proxies over `cores`. Proxies take `proxy_cores`, else the last cores, and ranks
/// keep off these if others are left. If the user does not say whether to bind ranks, they are bound only if
/// the processes fill all cores that we may use: the kernel places fewer processes better by itself.
pub fn plan(cores: &[Core], want: &Want) -> Result<CorePlan, String> {
    let cpus: Vec<usize> = cores.iter().flatten().copied().collect();
    let bind = want.bind;
    let (each, processes) = (want.each(), want.processes());
    if let Some(outside) = want.proxy_cores.and_then(|list| list.iter().find(|cpu| !cpus.contains(cpu))) {
        return Err(format!(
            "--proxy-cores: cpu {outside} is not among those that we may use ({})",
            listed(&cpus)
        ));
    }
    // A user who wants ranks mapped wants them bound.
    let bound = match bind {
        Some(bind) => bind.to.is_some(),
        None if want.map != Map::default() || want.threads => true,
        None => !want.crowded && processes >= want.given && processes <= cpus.len(),
    };
    let to = bind.and_then(|bind| bind.to).unwrap_or("Core");
    // With enough cores each process gets a whole one; else hardware threads are dealt out, one of each core
    // first.
    let threads = want.threads || to == "PU" || want.map.by == "PU";
    let units: Vec<Vec<usize>> = if processes <= cores.len() && !threads {
        cores.to_vec()
    } else {
        by_thread(cores).into_iter().map(|cpu| vec![cpu]).collect()
    };
    let of_proxies: Vec<Vec<usize>> = match want.proxy_cores {
        Some(list) => list.iter().map(|&cpu| vec![cpu]).collect(),
        None => {
            let taken = (want.proxies as usize).min(units.len().saturating_sub(1)).max(1);
            units[units.len() - taken..].to_vec()
        }
    };
    let busy = |unit: &Vec<usize>| {
        want.proxies > 0 && unit.iter().any(|cpu| of_proxies.iter().flatten().any(|p| p == cpu))
    };
    let free: Vec<Vec<usize>> = units.iter().filter(|unit| !busy(unit)).cloned().collect();
    let of_ranks = mapped(if free.is_empty() { &units } else { &free }, &want.map, each);
    if of_ranks.is_empty() {
        return Err(format!("a rank is to have {each} cores, but there are only {}", units.len()));
    }
    let deal = |units: &[Vec<usize>], count: u32, on: bool| -> Vec<Vec<usize>> {
        (0..count as usize)
            .map(|index| if on { units[index % units.len()].clone() } else { Vec::new() })
            .collect()
    };
    let alone = want.ranks as usize <= of_ranks.len()
        && want.proxies as usize <= of_proxies.len()
        && (want.proxies == 0 || !free.is_empty());
    let apart = bind.is_none_or(|bind| bind.to.is_some()) && want.proxies > 0 && !free.is_empty();
    let ranks_on = match (bound, apart) {
        (false, true) => vec![free.concat(); want.ranks as usize],
        _ => deal(&of_ranks, want.ranks, bound),
    };
    let proxies_on = deal(&of_proxies, want.proxies, bound || apart || want.proxy_cores.is_some());
    let of_bound_ranks = if bound { &ranks_on[..] } else { &[] };
    Ok(CorePlan {
        taken: proxies_on.iter().chain(of_bound_ranks).flatten().copied().collect(),
        anywhere: if bound { 0 } else { want.ranks as usize * each },
        ranks: ranks_on.into_iter().map(|unit| around(unit, to, &cpus)).collect(),
        proxies: proxies_on,
        spin: !want.crowded && processes <= cpus.len() && (alone || !bound),
    })
}

/// Returns a number for the unit of this kind (the socket, the cache, ...) that `cpu` belongs to: the unit's
/// first cpu. Returns 0 if the kernel does not report such units.
fn instance(kind: &str, cpu: usize) -> usize {
    match sys::topology::locality(kind, &[cpu]) {
        Some(Locality::Within(first)) => first,
        // A resource that the kernel does not report counts as one instance.
        _ => 0,
    }
}

/// Returns how many units of this kind (sockets, caches, ...) these cores belong to.
pub fn instances(kind: &str, cores: &[Core]) -> u32 {
    let mut firsts: Vec<usize> = cores.iter().map(|core| instance(kind, core[0])).collect();
    firsts.sort_unstable();
    firsts.dedup();
    firsts.len() as u32
}

/// Returns the cpus of each rank, in the order of ranks. A rank gets `each` of the units (cores or hardware
/// threads).
fn mapped(units: &[Vec<usize>], map: &Map, each: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<(usize, Vec<Vec<usize>>)> = Vec::new();
    let has_turns = !["Core", "PU", "Machine"].contains(&map.by);
    for unit in units {
        let at = if has_turns { instance(map.by, unit[0]) } else { 0 };
        match groups.iter_mut().find(|(group, _)| *group == at) {
            Some((_, group)) => group.push(unit.clone()),
            None => groups.push((at, vec![unit.clone()])),
        }
    }
    let groups: Vec<Vec<Vec<usize>>> = groups
        .into_iter()
        .map(|(_, group)| group.chunks_exact(each).map(|units| units.concat()).collect())
        .collect();
    let turn = map.each.unwrap_or(1).max(1) as usize;
    let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest.div_ceil(turn))
        .flat_map(|round| groups.iter().flat_map(move |group| group.iter().skip(round * turn).take(turn)))
        .cloned()
        .collect()
}

/// Returns those of `cpus` that share a socket, cache or other unit of this kind with a cpu of `unit`.
/// Returns `unit` itself if the kind is a core or hardware thread.
fn around(unit: Vec<usize>, kind: &str, cpus: &[usize]) -> Vec<usize> {
    if unit.is_empty() || ["Core", "PU"].contains(&kind) {
        return unit;
    }
    let near = |cpu: &usize| unit.iter().any(|own| instance(kind, *own) == instance(kind, *cpu));
    let mut all: Vec<usize> = cpus.iter().copied().filter(near).collect();
    all.sort_unstable();
    all
}

/// Returns a warning if a proxy has to share cpus with a rank, else None. `cpus`: how many cpus we may use.
pub fn shared_with_proxies(plan: &CorePlan, cpus: usize) -> Option<String> {
    let crowded = plan.ranks.len() + plan.proxies.len() > cpus;
    // An empty list means any cpu: the kernel keeps processes apart if there is room.
    let meet = |a: &[usize], b: &[usize]| match a.is_empty() || b.is_empty() {
        true => crowded,
        false => a.iter().any(|cpu| b.contains(cpu)),
    };
    let shares = |proxy: &Vec<usize>| plan.ranks.iter().any(|rank| meet(proxy, rank));
    let (index, cpus) = plan.proxies.iter().enumerate().find(|(_, proxy)| shares(proxy))?;
    Some(format!(
        "proxy {index} shares its cpus ({}) with ranks: it computes while they cannot. Leave it a core: fewer ranks, or --proxy-cores",
        listed(cpus)
    ))
}

/// Returns all hardware threads of these cores: first the first thread of each core, then the second of each,
/// and so on.
fn by_thread(cores: &[Core]) -> Vec<usize> {
    let deepest = cores.iter().map(Vec::len).max().unwrap_or(0);
    (0..deepest).flat_map(|depth| cores.iter().filter_map(move |core| core.get(depth).copied())).collect()
}

/// Returns cpu numbers as text for the user, such as `0-3,8`; `any` for an empty list.
pub fn listed(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    if ranges.is_empty() { "any".into() } else { ranges.iter().map(range).collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singles(cpus: &[usize]) -> Vec<Core> {
        cpus.iter().map(|&cpu| vec![cpu]).collect()
    }

    const NONE: Option<Bind> = Some(Bind { to: None, cores: 1 });
    const CORE: Option<Bind> = Some(Bind { to: Some("Core"), cores: 1 });

    fn planned(cores: &[Core], ranks: u32, proxies: u32, bind: Option<Bind>) -> CorePlan {
        plan(cores, &Want { ranks, proxies, bind, given: cores.len(), ..Want::default() }).unwrap()
    }

    #[test]
    fn enough_cores_are_dealt_out_and_proxies_take_the_last() {
        let plan = planned(&singles(&[4, 5, 7]), 2, 1, None);
        assert_eq!((plan.ranks, plan.proxies, plan.spin), (singles(&[4, 5]), singles(&[7]), true));
    }

    #[test]
    fn who_does_not_fill_the_machine_is_not_bound() {
        let four = singles(&[4, 5, 6, 7]);
        let few = planned(&four, 2, 0, None);
        assert_eq!((few.ranks, few.spin), (vec![vec![]; 2], true));
        let beside = planned(&four, 2, 1, None);
        assert_eq!((beside.ranks, beside.proxies), (vec![vec![4, 5, 6]; 2], singles(&[7])));
        assert_eq!(planned(&four, 2, 0, CORE).ranks, singles(&[4, 5]));
        let crowded = Want { ranks: 4, given: 4, crowded: true, ..Want::default() };
        let late = plan(&four, &crowded).unwrap();
        assert_eq!((late.ranks, late.spin), (vec![vec![]; 4], false));
    }

    #[test]
    fn too_few_cores_bind_only_on_request_but_ranks_keep_off_the_proxies() {
        let two = singles(&[0, 1]);
        let apart = planned(&two, 2, 1, None);
        assert_eq!((apart.ranks, apart.proxies, apart.spin), (singles(&[0, 0]), singles(&[1]), false));
        let shared = planned(&singles(&[0, 1, 2]), 4, 1, None);
        assert_eq!((shared.ranks, shared.proxies), (vec![vec![0, 1]; 4], singles(&[2])));
        let crowd = planned(&two, 3, 0, None);
        assert_eq!((crowd.ranks, crowd.spin), (vec![vec![]; 3], false));
        let anywhere = planned(&two, 2, 1, NONE);
        assert_eq!((anywhere.ranks, anywhere.proxies), (vec![vec![]; 2], vec![vec![]]));
        let bound = planned(&two, 2, 1, CORE);
        assert_eq!((bound.ranks, bound.proxies, bound.spin), (singles(&[0, 0]), singles(&[1]), false));
        let full = planned(&two, 2, 0, None);
        assert_eq!((full.ranks, full.spin), (singles(&[0, 1]), true));
        let free = planned(&two, 2, 0, NONE);
        assert_eq!((free.ranks, free.spin), (vec![vec![], vec![]], true));
        let one = planned(&singles(&[3]), 2, 1, CORE);
        assert_eq!((one.ranks, one.proxies, one.spin), (singles(&[3, 3]), singles(&[3]), false));
    }

    #[test]
    fn proxies_on_the_cores_of_ranks_are_told() {
        let shared = |cores: &[usize], ranks, proxies, bind| {
            shared_with_proxies(&planned(&singles(cores), ranks, proxies, bind), cores.len())
        };
        assert!(shared(&[3], 2, 1, CORE).unwrap().contains("proxy 0 shares its cpus (3)"));
        assert!(shared(&[0, 1], 2, 1, NONE).unwrap().contains("(any)"));
        for (cores, ranks, proxies, bind) in
            [(2, 2, 0, None), (2, 2, 1, None), (2, 5, 0, None), (4, 2, 1, NONE), (4, 2, 2, None)]
        {
            let cores: Vec<usize> = (0..cores).collect();
            assert_eq!(shared(&cores, ranks, proxies, bind), None, "{cores:?} {ranks} {proxies}");
        }
    }

    #[test]
    fn named_proxy_cores_are_kept_free() {
        let plan_of = |list: &[usize], ranks| {
            let want = Want { ranks, proxies: 2, bind: CORE, proxy_cores: Some(list), ..Want::default() };
            plan(&singles(&[0, 1, 2]), &want)
        };
        let plan = plan_of(&[0], 2).unwrap();
        assert_eq!((plan.ranks, plan.proxies, plan.spin), (singles(&[1, 2]), singles(&[0, 0]), false));
        assert!(plan_of(&[9], 1).unwrap_err().contains("cpu 9"));
    }

    #[test]
    fn hardware_threads() {
        let cores = vec![vec![0, 2], vec![1, 3]];
        let whole = planned(&cores, 2, 0, None);
        assert_eq!(whole.ranks, [[0, 2], [1, 3]]);
        let threads = planned(&cores, 3, 0, None);
        assert_eq!((threads.ranks, threads.spin), (singles(&[0, 1, 2]), true));
        let bind = Some(Bind { to: Some("PU"), cores: 1 });
        assert_eq!(planned(&cores, 2, 0, bind).ranks, singles(&[0, 1]));
    }

    #[test]
    fn several_cores_for_a_rank_and_turns() {
        let cores = singles(&[0, 1, 2, 3, 4]);
        let map = |text: &str| text.parse::<Map>().unwrap();
        let of = |ranks, text: &str| plan(&cores, &Want { ranks, map: map(text), ..Want::default() });
        assert_eq!(of(2, "slot:PE=2").unwrap().ranks, [[0, 1], [2, 3]]);
        assert!(of(1, "slot:PE=6").unwrap_err().contains("6 cores"));
        assert_eq!(mapped(&cores, &map("ppr:1:core"), 1), cores);
        // Where the kernel reports caches, every cpu has an L1 cache of its own, so turns among them are the
        // cores in order.
        assert_eq!(mapped(&singles(&[0, 1]), &map("l1cache:PE=1"), 1), singles(&[0, 1]));
        assert_eq!(instances("Machine", &cores), 1);
        assert_eq!(around(vec![1], "Machine", &[0, 1]), [0, 1]);
        assert_eq!(around(vec![1], "Core", &[0, 1]), [1]);
    }

    #[test]
    fn this_machine_has_cores() {
        let cpus: usize = cores().unwrap().iter().map(Vec::len).sum();
        assert_eq!(cpus, sys::cpu::allowed().unwrap().len());
        assert_eq!(listed(&[0, 1, 2, 5]), "0-2,5");
    }
}
