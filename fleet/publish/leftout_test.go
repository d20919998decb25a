// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A fleet:current of a later release is read, and what was left out is said; it is not
// written again, which would lose that.
func TestCurrentOfALaterRelease(t *testing.T) {
	f := newFleet(t)
	f.publish(f.nodes("", "10"), Options{})
	was, err := document(t.Context(), f.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	if err != nil {
		t.Fatal(err)
	}
	f.Now = f.Now.Add(time.Minute)
	later := slices.Concat(was.Document[:len(was.Document)-1], []byte(`,"laterKey":7}`))
	if _, err := f.putFleet(t.Context(), "metal-a", later, []string{"current"}, oci.TypeFleet, sign.PredicateFleet, freshFor); err != nil {
		t.Fatal(err)
	}
	report, err := f.Verify(t.Context(), f.policy, nil)
	if err != nil || !report.OK() || !strings.Contains(report.Findings[0].Detail, spec.LeftOut([]string{"laterKey"})) {
		t.Errorf("%+v, %v", report, err)
	}
	_, err = f.Publish(t.Context(), f.policy, f.nodes("", "20"), Options{})
	if refusal.Of(err) != refusal.NeedsAgent || !strings.Contains(err.Error(), "laterKey") {
		t.Errorf("it was written again: %v", err)
	}
	if now, err := document(t.Context(), f.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet); err != nil || string(now.Document) != string(later) {
		t.Errorf("%s, %v", now.Document, err)
	}
}

// Keys of a later release are said of a node that is as it should be, and that is not.
func TestNoteLeftOut(t *testing.T) {
	for detail, want := range map[string]string{"": "left out: a[].b (of a later release)", "expired then": "expired then; left out: a[].b (of a later release)"} {
		r := &Report{Findings: []Check{{What: "node:a", Verdict: "ok", Detail: detail}}}
		r.noteLeftOut(nil)
		if got := r.Findings[0].Detail; got != detail {
			t.Errorf("nothing was left out: %q", got)
		}
		r.noteLeftOut([]string{"a[].b"})
		if got := r.Findings[0].Detail; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
