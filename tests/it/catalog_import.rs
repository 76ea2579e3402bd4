//! `weir catalog import`: the differences between the configured models and a public price file, and their sections.
//!
//! `litellm.json` has entries of `model_prices_and_context_window_backup.json` of litellm 1.110.2 (PyPI) without the fields that
//! weir does not read. `models_dev.json` has models of `providers/` of github.com/anomalyco/models.dev as of October 2026, in the
//! form of its `packages/core/src/schema.ts`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::operate::{fail, folder, succeed};

const LITELLM: &str = include_str!("catalog_import/litellm.json");
const MODELS_DEV: &str = include_str!("catalog_import/models_dev.json");

/// A folder with a configuration and a price file.
fn with_prices(toml: &str, prices: &str) -> TempDir {
    let folder = folder(toml);
    fs::write(folder.path().join("prices.json"), prices).expect("the folder can be written");
    folder
}

fn import(folder: &Path, arguments: &[&str]) -> String {
    succeed(
        folder,
        &[&["catalog", "import", "prices.json"], arguments].concat(),
    )
}

/// Replaces a text that the file must have.
fn edited(file: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(file.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn assert_parts(printed: &str, parts: &[&str]) {
    for part in parts {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

/// The bundled catalog has these prices, too.
#[test]
fn a_price_file_is_compared_with_the_catalog() {
    let folder = with_prices("", LITELLM);
    let printed = import(folder.path(), &[]);
    assert_parts(
        &printed,
        &[
            "prices.json: LiteLLM, 12 entries; compared providers: anthropic, gemini, openai\n",
            "New models: 1\n  openai/gpt-6-cyber: input 20, cache_read 2, cache_write_short 25, cache_write_long 50, output 100; \
             window 922000, output 128000\n",
            "Changed prices, in USD per million tokens: 0\n",
            "Changed limits and ends: 0\n",
            "  gemini/gemini-3.8-flash\n",
            "Left out: 2\n  \"gemini/gemma-4-31b-it\": its price is 0\n  \"gpt-4-turbo\": the provider ended it on 2026-10-23\n",
        ],
    );
    let of_gemini = import(
        folder.path(),
        &["--provider", "gemini", "--model", "gemini-*-pro*"],
    );
    assert_parts(
        &of_gemini,
        &[
            "providers: gemini\n",
            "New models: 0",
            "lacks: 1\n  gemini/gemini-2.5-pro\n",
        ],
    );
}

#[test]
fn written_sections_bring_the_catalog_up_to_date() {
    let prices = edited(
        LITELLM,
        &[
            (
                "\"input_cost_per_token\": 7.5e-07",
                "\"input_cost_per_token\": 7.51234567e-07",
            ),
            (
                "\"max_output_tokens\": 64000",
                "\"max_output_tokens\": 4000",
            ),
            (
                "_above_272k_tokens\": 1.5e-05",
                "_above_272k_tokens\": 0.0000175",
            ),
            ("_above_200k_tokens\"", "_above_300k_tokens\""),
            ("_above_100k_tokens\"", "_above_no_tokens\""),
        ],
    );
    let folder = with_prices("", &prices);
    let printed = import(folder.path(), &["--write", "new.toml"]);
    assert_parts(
        &printed,
        &[
            "  openai/gpt-5.4-mini: input 0.75 -> 0.751234567\n",
            "  openai/gpt-6.1-sol: above.price.output 15 -> 17.5\n",
            "  gemini/gemini-3.1-pro-preview: above.input_tokens 200000 -> 300000\n",
            "  anthropic/claude-haiku-5-5: above set -> none\n",
            "  anthropic/claude-haiku-4-5: max_output_tokens 64000 -> 4000, default_output_tokens 8192 -> 4000\n",
            "Wrote 6 sections to new.toml.",
        ],
    );
    let path = folder.path().join("new.toml");
    let written = fs::read_to_string(&path).expect("the file");
    assert_parts(
        &written,
        &[
            "[models.\"gpt-5.4-mini\"]\nprice = { input = 0.751234567, cache_read = 0.075, output = 4.5 }\n",
            "[models.\"claude-haiku-4-5\"]\nmax_output_tokens = 4000\ndefault_output_tokens = 4000\n",
            "[models.\"gpt-6-cyber\"]\ncontext_window = 922000\nmax_output_tokens = 128000\ndefault_output_tokens = 8192\n\
             supports_tools = true\n# The model accepts images.",
            "upstreams = [{ provider = \"openai\" }]\n\
             price = { input = 20, cache_read = 2, cache_write_short = 25, cache_write_long = 50, output = 100 }\n",
        ],
    );
    let again = fail(
        folder.path(),
        &["catalog", "import", "prices.json", "--write", "new.toml"],
    );
    assert!(again.contains("new.toml"), "{again}");
    assert_eq!(fs::read_to_string(&path).expect("the file"), written);

    fs::write(folder.path().join("weir.toml"), &written).expect("the folder can be written");
    succeed(folder.path(), &["check"]);
    let printed = import(folder.path(), &["--write", "none.toml"]);
    assert_parts(
        &printed,
        &[
            "New models: 0\n",
            "per million tokens: 0\n",
            "limits and ends: 0\n",
            "Nothing to write.",
        ],
    );
    assert!(!folder.path().join("none.toml").exists());
}

/// Two sections of one model would be an error of TOML, and a section replaces no price inside `upstreams`.
#[test]
fn sections_that_cannot_be_added_are_comments() {
    let toml = "[models.\"gpt-5.4-mini\"]\nname = \"Mine\"\n";
    let prices = edited(
        LITELLM,
        &[(
            "\"input_cost_per_token\": 7.5e-07",
            "\"input_cost_per_token\": 8e-07",
        )],
    );
    let folder = with_prices(toml, &prices);
    import(
        folder.path(),
        &["--write", "new.toml", "--model", "gpt-5.4-mini"],
    );
    let written = fs::read_to_string(folder.path().join("new.toml")).expect("the file");
    assert_parts(
        &written,
        &[
            "# Merge this section by hand: your configuration has a section for this model.\n\
             # [models.\"gpt-5.4-mini\"]\n# price = { input = 0.8,",
        ],
    );
    fs::write(folder.path().join("weir.toml"), toml.to_owned() + &written).expect("written");
    succeed(folder.path(), &["check"]);
}

#[test]
fn models_dev_is_read_too() {
    let prices = edited(
        MODELS_DEV,
        &[
            (
                "\"input\": 1, \"output\": 5, \"cache_read\": 0.1",
                "\"input\": 1.1, \"output\": 5, \"cache_read\": 0.1",
            ),
            ("\"context\": 1048576", "\"context\": 2097152"),
        ],
    );
    let folder = with_prices("", &prices);
    let printed = import(folder.path(), &["--write", "new.toml"]);
    assert_parts(
        &printed,
        &[
            "models.dev, 4 entries; compared providers: anthropic, gemini\n",
            "New models: 1\n  gemini/gemini-3-pro-preview: input 2, cache_read 0.2, output 12, more above 200000; window 1000000, \
             output 64000\n",
            "per million tokens: 1\n  anthropic/claude-haiku-4-5: input 1 -> 1.1\n",
            "limits and ends: 1\n  gemini/gemini-3.1-pro-preview: context_window 1048576 -> 2097152\n",
            "Left out: 0\n",
        ],
    );
    let written = fs::read_to_string(folder.path().join("new.toml")).expect("the file");
    assert_parts(
        &written,
        &[
            "[models.\"gemini-3-pro-preview\"]\nname = \"Gemini 3 Pro Preview\"\n",
            "price = { input = 2, cache_read = 0.2, output = 12, above = { input_tokens = 200000, \
             price = { input = 4, cache_read = 0.4, output = 18 } } }\n",
        ],
    );
    fs::write(folder.path().join("weir.toml"), written).expect("the folder can be written");
    succeed(folder.path(), &["check"]);
}

#[test]
fn a_provider_with_another_name_can_be_named() {
    let toml = "[providers.eu]\nadapter = \"anthropic\"\nbase_url = \"https://eu.example/v1\"\n";
    let folder = with_prices(toml, MODELS_DEV);
    let printed = import(folder.path(), &["--provider", "eu=anthropic"]);
    assert_parts(
        &printed,
        &[
            "compared providers: eu\n",
            "New models: 0\n",
            "Left out: 1\n  \"anthropic/claude-haiku-4-5\": the configuration has this model at another provider\n",
        ],
    );
    for (provider, part) in [
        (
            "none",
            "--provider none: the configuration has no provider \"none\"; it has: anthropic, demo, eu, gemini, openai",
        ),
        (
            "eu",
            "--provider eu: the file has no provider \"eu\"; name it as in eu=KEY. The file has: anthropic, google",
        ),
        ("eu=asia", "the file has no provider \"asia\""),
    ] {
        let errors = fail(
            folder.path(),
            &["catalog", "import", "prices.json", "--provider", provider],
        );
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn entries_that_weir_cannot_use_are_named() {
    let prices = edited(
        LITELLM,
        &[
            (
                "\"input_cost_per_token\": 7.5e-07",
                "\"input_cost_per_token\": 7.5123456789e-07",
            ),
            (
                "\"output_cost_per_reasoning_token\": 4e-07",
                "\"output_cost_per_reasoning_token\": 5e-07",
            ),
            (
                "\"max_input_tokens\": 922000",
                "\"max_input_tokens\": \"many\"",
            ),
        ],
    );
    let folder = with_prices("", &prices);
    let printed = import(folder.path(), &["--write", "new.toml"]);
    assert_parts(
        &printed,
        &[
            "  \"gpt-5.4-mini\": `input_cost_per_token` is 7.5123456789e-07: ",
            "at most 9 decimals\n",
            "  \"gemini/gemini-2.5-flash-lite\": `output_cost_per_reasoning_token` differs",
            "  \"gpt-6.1-sol\": `max_input_tokens` is \"many\": ",
            "Nothing to write.",
        ],
    );
    for (text, part) in [
        ("nonsense", "prices.json is not a JSON object: "),
        (
            "{ \"a\": 1 }",
            "prices.json is neither LiteLLM's price file",
        ),
        ("{}", "prices.json is neither LiteLLM's price file"),
        (
            "{ \"x\": { \"litellm_provider\": \"other\" } }",
            "the file has none of the configured providers",
        ),
    ] {
        fs::write(folder.path().join("prices.json"), text).expect("the folder can be written");
        let errors = fail(folder.path(), &["catalog", "import", "prices.json"]);
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let missing = fail(folder.path(), &["catalog", "import", "none.json"]);
    assert!(missing.contains("none.json"), "{missing}");
}
