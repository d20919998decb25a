// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestTakes: arguments are what a line of usage has.
func TestTakes(t *testing.T) {
	for _, c := range []struct{ usage, args, want string }{
		{"FILE… --node NAME", "", "FILE is missing"},
		{"FILE… --node NAME", "a b c", ""},
		{"SRC DST (--site FILE | --unverified)", "a", "DST is missing"},
		{"SRC DST (--site FILE | --unverified)", "a b c", `"c" is an argument too many`},
		{"REF [GEN] (--site FILE | --trust PUB)", "a b", ""},
		{"REF [GEN] (--site FILE | --trust PUB)", "a b c", `"c" is an argument too many`},
		{"NAME [--to COMMIT] --reason TEXT", "a b", `"b" is an argument too many`},
		{"--db sqlite:FILE NEW", "", "NEW is missing"},
		{"[NAME…]", "", ""},
		{"[NAME…]", "a b", ""},
		{"", "a", `unknown command "a" for "x"`}, // cobra's own
	} {
		err := takes(c.usage)(&cobra.Command{Use: "x"}, strings.Fields(c.args))
		if got := fmt.Sprint(err); got != c.want && (err != nil || c.want != "") {
			t.Errorf("%s: %q: %v", c.usage, c.args, err)
		}
	}
}

// TestUsageHasWhatIsRequired: a flag that a verb does not do without stands in its line of usage, which is the
// hint of a call without it.
func TestUsageHasWhatIsRequired(t *testing.T) {
	required := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if _, must := f.Annotations[cobra.BashCompOneRequiredFlag]; must {
				required++
				if !strings.Contains(c.UseLine(), "--"+f.Name+" ") {
					t.Errorf("%q has no --%s", c.UseLine(), f.Name)
				}
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newApp(io.Discard, io.Discard).root())
	if required < 10 {
		t.Errorf("%d flags are required: are they found?", required)
	}
}
