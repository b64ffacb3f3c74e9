//! Prices from the command line: `--price MODEL=IN,OUT[,CACHE_READ[,CACHE_NEW[,REASONING]]]`.

use subtend_actors::prices::{Price, Prices};

use super::super::fail::Fail;
use super::super::paint::clip;

/// Adds the prices of `options` to `base`, in US dollars per million tokens.
pub(super) fn read(options: &[String], base: Prices) -> Result<Prices, Fail> {
    let prices = options.iter().try_fold(base, |prices, word| {
        let (name, price) = parse_price(word)?;
        Ok::<_, Fail>(prices.with(name, price))
    })?;
    prices.check().map_err(|(name, bad)| Fail::Usage(format!("the price of `{name}`: {bad} (--price)")))?;
    Ok(prices)
}

fn parse_price(word: &str) -> Result<(&str, Price), Fail> {
    let bad = || {
        Fail::Usage(format!(
            "`{}` is not a price: write MODEL=IN,OUT in US dollars per million tokens, such as `openai/gpt-5*=1.25,10`, followed, \
             if they differ, by the prices of tokens read from cache, newly cached and of reasoning (--price)",
            clip(word, 80)
        ))
    };
    let (name, figures) = word.split_once('=').ok_or_else(bad)?;
    let figures: Vec<f64> =
        figures.split(',').map(|figure| figure.trim().parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
    let (&[input, output, ref rest @ ..], false) = (figures.as_slice(), name.trim().is_empty()) else {
        return Err(bad());
    };
    if rest.len() > 3 {
        return Err(bad());
    }
    let mut price = Price::new(input, output);
    price.cache_read = rest.first().copied();
    price.cache_new = rest.get(1).copied();
    price.reasoning = rest.get(2).copied();
    Ok((name.trim(), price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_has_a_model_and_two_to_five_numbers() {
        let (name, price) = parse_price("openai/gpt-5*=1.25,10,0.125").expect("a price");
        assert_eq!(
            (name, price.input, price.output, price.cache_read, price.reasoning),
            ("openai/gpt-5*", 1.25, 10.0, Some(0.125), None)
        );
        for wrong in ["gpt", "gpt=1", "gpt=1,2,3,4,5,6", "=1,2", "gpt=1,x"] {
            assert!(parse_price(wrong).expect_err("no price").to_string().contains("MODEL=IN,OUT"), "{wrong}");
        }
        assert!(read(&["gpt=-1,2".to_owned()], Prices::new()).is_err());
    }
}
