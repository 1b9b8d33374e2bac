//! Which process runs on which cpus, inside the set that we were given.

use super::arguments::Bind;

/// A core: its hardware threads that we may use, by number.
pub type Core = Vec<usize>;

/// The cpus of every process; an empty list means anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By rank.
    pub ranks: Vec<Vec<usize>>,
    /// By proxy.
    pub proxies: Vec<Vec<usize>>,
    /// Whether every process has a cpu that no other one needs, so that waiting may spin.
    pub spin: bool,
}

/// The cores of this machine that we may use, in the order of their first hardware thread.
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

/// Distributes `ranks` and `proxies` over `cores`. Without a word from the user, processes are bound if each can have a
/// cpu; proxies take the last cores, or `proxy_cores`, and ranks keep off those as long as any other is left, however many
/// they are: a proxy that polls on a rank's core takes half of it.
pub fn plan(
    cores: &[Core],
    ranks: u32,
    proxies: u32,
    bind: Option<Bind>,
    proxy_cores: Option<&[usize]>,
) -> Result<Plan, String> {
    let cpus: Vec<usize> = cores.iter().flatten().copied().collect();
    let processes = ranks as usize + proxies as usize;
    if let Some(foreign) = proxy_cores.and_then(|list| list.iter().find(|cpu| !cpus.contains(cpu))) {
        return Err(format!(
            "--proxy-cores: cpu {foreign} is not among those that we may use ({})",
            told(&cpus)
        ));
    }
    let bound = match bind {
        Some(bind) => bind == Bind::Core,
        None => processes <= cpus.len(),
    };
    // With enough cores everybody gets a whole one; else hardware threads are dealt out, one of each core first.
    let units: Vec<Vec<usize>> = if processes <= cores.len() {
        cores.to_vec()
    } else {
        by_thread(cores).into_iter().map(|cpu| vec![cpu]).collect()
    };
    let of_proxies: Vec<Vec<usize>> = match proxy_cores {
        Some(list) => list.iter().map(|&cpu| vec![cpu]).collect(),
        None => {
            let taken = (proxies as usize).min(units.len().saturating_sub(1)).max(1);
            units[units.len() - taken..].to_vec()
        }
    };
    let busy = |unit: &Vec<usize>| {
        proxies > 0 && unit.iter().any(|cpu| of_proxies.iter().flatten().any(|p| p == cpu))
    };
    let free: Vec<Vec<usize>> = units.iter().filter(|unit| !busy(unit)).cloned().collect();
    let of_ranks = if free.is_empty() { &units } else { &free };
    let deal = |units: &[Vec<usize>], count: u32, on: bool| -> Vec<Vec<usize>> {
        (0..count as usize)
            .map(|index| if on { units[index % units.len()].clone() } else { Vec::new() })
            .collect()
    };
    let alone = ranks as usize <= of_ranks.len()
        && proxies as usize <= of_proxies.len()
        && (proxies == 0 || !free.is_empty());
    let apart = bind != Some(Bind::None) && proxies > 0 && !free.is_empty();
    let ranks_on = match (bound, apart) {
        (false, true) => vec![free.concat(); ranks as usize],
        _ => deal(of_ranks, ranks, bound),
    };
    Ok(Plan {
        ranks: ranks_on,
        proxies: deal(&of_proxies, proxies, bound || apart || proxy_cores.is_some()),
        spin: processes <= cpus.len() && (alone || !bound),
    })
}

/// All hardware threads: the first of each core, then the second ones.
fn by_thread(cores: &[Core]) -> Vec<usize> {
    let deepest = cores.iter().map(Vec::len).max().unwrap_or(0);
    (0..deepest).flat_map(|depth| cores.iter().filter_map(move |core| core.get(depth).copied())).collect()
}

/// Cpu numbers for people: `0-3,8`.
pub fn told(cpus: &[usize]) -> String {
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

    #[test]
    fn enough_cores_are_dealt_out_and_proxies_take_the_last() {
        let plan = plan(&singles(&[4, 5, 6, 7]), 2, 1, None, None).unwrap();
        assert_eq!((plan.ranks, plan.proxies, plan.spin), (singles(&[4, 5]), singles(&[7]), true));
    }

    #[test]
    fn too_few_cores_bind_only_on_request_but_ranks_keep_off_the_proxies() {
        let two = singles(&[0, 1]);
        let apart = plan(&two, 2, 1, None, None).unwrap();
        assert_eq!((apart.ranks, apart.proxies, apart.spin), (singles(&[0, 0]), singles(&[1]), false));
        let shared = plan(&singles(&[0, 1, 2]), 4, 1, None, None).unwrap();
        assert_eq!((shared.ranks, shared.proxies), (vec![vec![0, 1]; 4], singles(&[2])));
        let crowd = plan(&two, 3, 0, None, None).unwrap();
        assert_eq!((crowd.ranks, crowd.spin), (vec![vec![]; 3], false));
        let anywhere = plan(&two, 2, 1, Some(Bind::None), None).unwrap();
        assert_eq!((anywhere.ranks, anywhere.proxies), (vec![vec![]; 2], vec![vec![]]));
        let bound = plan(&two, 2, 1, Some(Bind::Core), None).unwrap();
        assert_eq!((bound.ranks, bound.proxies, bound.spin), (singles(&[0, 0]), singles(&[1]), false));
        let full = plan(&two, 2, 0, None, None).unwrap();
        assert_eq!((full.ranks, full.spin), (singles(&[0, 1]), true));
        let free = plan(&two, 2, 0, Some(Bind::None), None).unwrap();
        assert_eq!((free.ranks, free.spin), (vec![vec![], vec![]], true));
        let one = plan(&singles(&[3]), 2, 1, Some(Bind::Core), None).unwrap();
        assert_eq!((one.ranks, one.proxies, one.spin), (singles(&[3, 3]), singles(&[3]), false));
    }

    #[test]
    fn named_proxy_cores_are_kept_free() {
        let plan_of =
            |list: &[usize], ranks| plan(&singles(&[0, 1, 2]), ranks, 2, Some(Bind::Core), Some(list));
        let plan = plan_of(&[0], 2).unwrap();
        assert_eq!((plan.ranks, plan.proxies, plan.spin), (singles(&[1, 2]), singles(&[0, 0]), false));
        assert!(plan_of(&[9], 1).unwrap_err().contains("cpu 9"));
    }

    #[test]
    fn hardware_threads() {
        let cores = vec![vec![0, 2], vec![1, 3]];
        let whole = plan(&cores, 2, 0, None, None).unwrap();
        assert_eq!(whole.ranks, [[0, 2], [1, 3]]);
        let threads = plan(&cores, 3, 0, None, None).unwrap();
        assert_eq!((threads.ranks, threads.spin), (singles(&[0, 1, 2]), true));
    }

    #[test]
    fn this_machine_has_cores() {
        let cpus: usize = cores().unwrap().iter().map(Vec::len).sum();
        assert_eq!(cpus, sys::cpu::allowed().unwrap().len());
        assert_eq!(told(&[0, 1, 2, 5]), "0-2,5");
    }
}
