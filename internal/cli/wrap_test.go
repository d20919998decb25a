// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 49)
	got := Wrap("short\nlines " + word + "\nthat " + word + " go on\n\nnext\nparagraph\n  a list\n  stays\nend")
	want := "short lines " + word + " that\n" + word + " go on\n\nnext paragraph\n  a list\n  stays\nend"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := Wrap(got); again != got {
		t.Errorf("wrapped again\n%s", again)
	}
}
