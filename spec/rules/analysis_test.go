// SPDX-License-Identifier: Apache-2.0

package rules

import "testing"

func TestWorse(t *testing.T) {
	for text, want := range map[string]Bound{
		"> 1.2 ×": {Times: true, Value: 1.2},
		">1.2x":   {Times: true, Value: 1.2},
		"< 0.9 ×": {Below: true, Times: true, Value: 0.9},
		"> 0.05":  {Value: 0.05},
		"< 3":     {Below: true, Value: 3},
	} {
		got, err := Worse(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if limit := got.Of(10); got.Beyond(limit, limit) || !got.Beyond(limit+1, limit) != got.Below {
			t.Errorf("%q: of 10 the limit is %g", text, limit)
		}
	}
	for _, text := range []string{"", "1.2", "> -1", ">= 1", "> 1e3", "> NaN ×", "> 1.2 ××", "> 1 × ", "> .5", "> 99999999999999"} {
		if got, err := Worse(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}
