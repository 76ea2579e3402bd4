//! The order of a request's upstreams by its length.

use weir_sdk::filter::{
    Description, Filter, Refusal, RefusedSetting, Request, Setting, Upstream, Verdict,
};

pub struct RouteByLength;

/// The operator's options. As bytes: the limit, the providers of short requests and those of long ones, a line each.
#[derive(Default)]
struct Options {
    limit: String,
    short: String,
    long: String,
}

impl Filter for RouteByLength {
    fn describe() -> Description {
        let options = ["limit", "short", "long"];
        Description {
            name: "route-by-length".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: options.map(str::to_owned).to_vec(),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let refused = |name: &str, why: &str| RefusedSetting {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        let mut read = Options::default();
        for (name, value) in options {
            let setting = match &**name {
                "limit" if value.parse::<u64>().is_ok() => &mut read.limit,
                "limit" => return Err(refused(name, "must be a number of tokens")),
                "short" => &mut read.short,
                "long" => &mut read.long,
                _ => return Err(refused(name, "is not an option of this filter")),
            };
            if value.contains('\n') {
                return Err(refused(name, "must be one line"));
            }
            value.clone_into(setting);
        }
        if read.limit.is_empty() {
            return Err(refused("limit", "must be set, to a number of tokens"));
        }
        let Options { limit, short, long } = read;
        Ok(format!("{limit}\n{short}\n{long}").into_bytes())
    }

    fn screen(request: Request, configuration: &[u8]) -> Result<Verdict, Refusal> {
        let text = String::from_utf8_lossy(configuration);
        let mut lines = text.split('\n');
        let limit = lines.next().and_then(|limit| limit.parse().ok());
        let (Some(limit), Some(short), Some(long)) = (limit, lines.next(), lines.next()) else {
            panic!("this is not of `configure`");
        };
        let preferred = match request.input_tokens < limit {
            true => short,
            false => long,
        };
        Ok(Verdict {
            upstreams: order(&request.upstreams, preferred),
            ..Verdict::default()
        })
    }
}

/// Returns the listed providers in the order of the list, then all others as fallbacks.
fn order(upstreams: &[Upstream], preferred: &str) -> Vec<u32> {
    let names: Vec<_> = preferred.split(',').map(str::trim).collect();
    let rank = |upstream: &Upstream| {
        let place = names.iter().position(|name| *name == upstream.provider);
        place.unwrap_or(names.len())
    };
    let mut order: Vec<_> = (0..).zip(upstreams).collect();
    order.sort_by_key(|(_, upstream)| rank(upstream));
    order.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use weir_sdk::adapter::Task;
    use weir_sdk::testing::{chat, screened};

    use super::*;

    fn setting(name: &str, value: &str) -> Setting {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn preferred_providers_come_first_and_no_other_is_lost() {
        let options = [
            setting("limit", "1000"),
            setting("short", "d, b,unheard-of"),
            setting("long", "c"),
        ];
        let configuration = RouteByLength::configure(&options).expect("they are its own");
        for (tokens, expected) in [
            (1, [3, 1, 0, 2]),
            (999, [3, 1, 0, 2]),
            (1000, [2, 0, 1, 3]),
            (u64::MAX, [2, 0, 1, 3]),
        ] {
            let request = screened(Task::Chat(chat("x")), &["a", "b", "c", "d"], tokens);
            let verdict = RouteByLength::screen(request, &configuration);
            let verdict = verdict.expect("it refuses nothing");
            assert_eq!(verdict.upstreams, expected, "{tokens}");
            assert!(verdict.change.is_none() && verdict.answer.is_none());
        }
    }

    #[test]
    fn a_side_without_providers_keeps_the_gateways_order() {
        let configuration = RouteByLength::configure(&[setting("limit", "10")]);
        let configuration = configuration.expect("the limit is enough");
        let request = screened(Task::Chat(chat("x")), &["a", "b"], 1);
        let verdict = RouteByLength::screen(request, &configuration);
        let verdict = verdict.expect("it refuses nothing");
        assert_eq!(verdict.upstreams, [0, 1]);
    }

    #[test]
    fn a_limit_must_be_set_to_a_number() {
        for options in [
            vec![],
            vec![setting("limit", "many")],
            vec![setting("short", "a")],
        ] {
            let refused = RouteByLength::configure(&options).expect_err("it is refused");
            assert_eq!(refused.name, "limit");
        }
    }
}
