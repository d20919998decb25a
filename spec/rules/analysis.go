// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"strconv"
)

// Bound is a [spec.Analysis.Worse] that was read.
type Bound struct {
	Below bool    // what is below it is worse; else what is above it
	Times bool    // Value is a factor
	Value float64 // not negative
}

var boundText = regexp.MustCompile(`^([<>]) ?([0-9]{1,12}(?:\.[0-9]{1,12})?)( ?[×x])?$`)

// Worse reads when a mean is worse, as in "> 1.2 ×" or "< 0.99".
func Worse(text string) (Bound, error) {
	m := boundText.FindStringSubmatch(text)
	if m == nil {
		return Bound{}, fmt.Errorf(`%q is not a bound, as in "> 1.2 ×" or "< 0.99"`, text)
	}
	value, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return Bound{}, fmt.Errorf("bound %q: %w", text, err)
	}
	return Bound{Below: m[1] == "<", Times: m[3] != "", Value: value}, nil
}

// Of returns the limit that it makes of the mean of others.
func (b Bound) Of(others float64) float64 {
	if b.Times {
		return b.Value * others
	}
	return b.Value
}

// Beyond reports whether a mean is worse than a limit.
func (b Bound) Beyond(mean, limit float64) bool {
	if b.Below {
		return mean < limit
	}
	return mean > limit
}
