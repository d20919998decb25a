// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"strings"
	"testing"
)

func TestKernelLine(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "panic=30",
		"quiet mem=48M":        "quiet mem=48M panic=30",
		"panic=0 quiet":        "panic=0 quiet",
		"panic=-1":             "panic=-1",
		"panic_on_oops=1":      "panic_on_oops=1 panic=30",
		"oops=panic panic=300": "oops=panic panic=300",
	} {
		if got := strings.Join(KernelLine(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
