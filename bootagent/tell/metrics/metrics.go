// SPDX-License-Identifier: Apache-2.0

// Package metrics says in Prometheus' text format what a node knows about itself.
//
// One row of one table is one series; docs/metrics.md is held to it by a test. What
// is one of several states is one series a state, of which one is 1. The format is
// written by hand: it is three kinds of lines, and the client library would cost the
// agent 3.4 MB. Package metrics does not read the system: bootagent/node gives it
// the facts, and says when they are counted and published.
package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Facts holds the values that the series are made of.
type Facts struct {
	Now         time.Time
	Status      *spec.Status
	Maintenance *spec.Maintenance // of the overlay; nil where there is none
	Counts      state.Counts
}

// Family is a row of the table: a metric and its labels.
type Family struct {
	Name   string
	Type   string // gauge or counter
	Labels []string
	Help   string

	collect func(f *Facts, put put)
}

// put adds one series; labels are in the order of the row's.
type put func(value float64, labels ...string)

// Text returns all series. A row without one is left out.
func Text(f *Facts) []byte {
	var out bytes.Buffer
	for _, row := range table {
		head := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", row.Name, helpText.Replace(row.Help), row.Name, row.Type)
		row.collect(f, func(value float64, labels ...string) {
			out.WriteString(head)
			head = ""
			out.WriteString(row.Name)
			for i, l := range labels {
				fmt.Fprintf(&out, `%s%s="%s"`, separator(i), row.Labels[i], labelText.Replace(strings.ToValidUTF8(l, "?")))
			}
			if len(labels) > 0 {
				out.WriteString("}")
			}
			out.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
		})
	}
	return out.Bytes()
}

func separator(i int) string {
	if i == 0 {
		return "{"
	}
	return ","
}

// What has to be escaped, see https://prometheus.io/docs/instrumenting/exposition_formats.
var (
	helpText  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelText = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// at puts a time, where it is known.
func at(put put, t time.Time, labels ...string) {
	if !t.IsZero() {
		put(float64(t.Unix()), labels...)
	}
}

// oneOf puts one series for each of the states, and for one that is not among them.
func oneOf(put put, is string, states []string, labels ...string) {
	known := false
	for _, s := range states {
		put(boolean(s == is), append(labels[:len(labels):len(labels)], s)...)
		known = known || s == is
	}
	if !known {
		put(1, append(labels[:len(labels):len(labels)], is)...)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// CountCorrections counts settings that were found changed and are right again. What
// the last look found was counted then.
func CountCorrections(c *state.Counts, changes, last []spec.Drift) {
	for _, d := range changes {
		add(&c.Corrections, d.Item)
		if !has(last, d) {
			add(&c.Drift, d.Item)
		}
	}
}

// CountDrift counts what a look found that the last one had not.
func CountDrift(c *state.Counts, found, last []spec.Drift) {
	for _, d := range found {
		switch d.Action {
		case spec.ActionDefer, spec.ActionCannot, spec.ActionRefuse, spec.ActionFailed, spec.ActionRun:
		default:
			if !has(last, d) {
				add(&c.Drift, d.Item)
			}
		}
	}
}

// NoteArtifacts notes what runs, and since when.
func NoteArtifacts(c *state.Counts, st *spec.Status, now time.Time) {
	for slot, digest := range map[string]string{"overlay": st.Overlay, "layer": st.Layer} {
		if digest == "" || c.Artifacts[slot].Digest == digest {
			continue
		}
		if c.Artifacts == nil {
			c.Artifacts = map[string]state.Artifact{}
		}
		c.Artifacts[slot] = state.Artifact{Digest: digest, Since: now.Unix()}
	}
}

// CountTransition counts a decision that changed something.
func CountTransition(c *state.Counts, name string) { add(&c.Transitions, name) }

// CountFetch counts how the registry answered: err is the result of asking it.
func CountFetch(c *state.Counts, err error, now time.Time) {
	switch {
	case err == nil:
		c.Verified = now.Unix()
		add(&c.Fetches, "ok")
	case refusal.Of(err) != "":
		add(&c.Fetches, "refused")
	default:
		add(&c.Fetches, "unreachable")
	}
}

func has(list []spec.Drift, d spec.Drift) bool {
	return slices.ContainsFunc(list, func(e spec.Drift) bool { return e.Item == d.Item && e.Key == d.Key })
}

func add(to *map[string]uint64, key string) {
	if *to == nil {
		*to = map[string]uint64{}
	}
	(*to)[key]++
}
