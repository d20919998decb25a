// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"slices"
	"testing"
)

func TestWord(t *testing.T) {
	known := slices.Values([]string{"publish", "pin", "plan", "node", "plain-http", "rerun_policy"})
	for got, want := range map[string]string{
		"pubish": "publish", "PLAN": "plan", "pim": "pin", "nod": "node", "plainhttp": "plain-http", "rerun-policy": "rerun_policy",
		"frobnicate": "", "": "", "p": "",
	} {
		if word := Nearest(got, known); word != want {
			t.Errorf("%q: %q, want %q", got, word, want)
		}
		if want != "" {
			want = "did you mean " + want + "?"
		}
		if asks := DidYouMean(got, known); asks != want {
			t.Errorf("%q: %q, want %q", got, asks, want)
		}
	}
}
