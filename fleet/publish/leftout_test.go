// SPDX-License-Identifier: Apache-2.0

package publish

import "testing"

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
