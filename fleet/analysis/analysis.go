// SPDX-License-Identifier: Apache-2.0

// Package analysis compares nodes that a rollout moved with others, by what a Prometheus measured.
//
// [Client.Measure] asks it for the values of all nodes at some moments, [Judge] compares their means. What
// is missing, not a number or not to be had is never well: it holds the rollout where it is.
package analysis

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// moments is how many there are in the time that is looked at, its ends among them.
const moments = 6

// Measured holds the values of nodes at some moments.
type Measured struct {
	At      [moments]map[string]float64 // node → value
	Trouble string                      // why there are none
}

// Judge compares the means of nodes, with those of others where the analysis wants it. It says
// why they are worse, at all moments; or what keeps that from being known, "" where it is known.
func Judge(a spec.Analysis, m Measured, nodes, others []string) (worse, holds string) {
	bound, err := rules.Worse(a.Worse)
	switch {
	case err != nil: // a plan of another release
		return "", err.Error()
	case m.Trouble != "":
		return "", m.Trouble
	}
	beyond := 0
	for _, values := range m.At {
		mine, holds := of(values, nodes, a.AtLeast)
		if holds != "" {
			return "", holds
		}
		worse = fmt.Sprintf("the mean of %s is %.4g", plain.Count(mine.n, "node"), mine.mean)
		var rest side
		if a.Against != "" {
			if rest, holds = of(values, others, a.AtLeast); holds != "" {
				return "", "of the others " + holds
			}
			if mine.mean < 0 || rest.mean < 0 {
				return "", fmt.Sprintf("%s, that of %s is %.4g: values below 0 have no factor", worse, plain.Count(rest.n, "other"), rest.mean)
			}
			worse += fmt.Sprintf(", that of %s is %.4g", plain.Count(rest.n, "other"), rest.mean)
		}
		if bound.Beyond(mine.mean, bound.Of(rest.mean)) {
			beyond++
		}
	}
	worse += fmt.Sprintf("; worse is %s", a.Worse)
	switch beyond {
	case 0:
		return "", ""
	case moments:
		return fmt.Sprintf("%s, for %s", worse, time.Duration(a.For)*time.Second), ""
	}
	return "", fmt.Sprintf("%s: it was at %d of %d moments within %s", worse, beyond, moments, time.Duration(a.For)*time.Second)
}

// side holds the values of one side at a moment.
type side struct {
	n    int // nodes that have a value
	mean float64
}

func of(values map[string]float64, nodes []string, atLeast int) (s side, holds string) {
	sum := 0.0
	for _, name := range slices.Sorted(slices.Values(nodes)) {
		value, has := values[name]
		switch {
		case !has:
			continue
		case math.IsNaN(value) || math.IsInf(value, 0):
			return s, fmt.Sprintf("node %s has the value %v", name, value)
		}
		s.n++
		sum += value
	}
	if s.n < atLeast || s.n == 0 {
		return s, fmt.Sprintf("%d of %s have a value, %d must", s.n, plain.Count(len(nodes), "node"), max(atLeast, 1))
	}
	s.mean = sum / float64(s.n)
	return s, ""
}
