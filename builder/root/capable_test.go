// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

func TestCapable(t *testing.T) {
	require.Root(t)
	if err := Capable(); err != nil {
		t.Skipf("this machine cannot build: %v", err)
	}
	failed := errors.New("it failed")
	if err := unprivileged(failed); err != failed {
		t.Errorf("with all that is needed, %v became %v", failed, err)
	}
	for _, c := range []struct {
		u    Unprivileged
		want string
	}{
		{Unprivileged{Missing: []string{"CAP_SYS_ADMIN"}}, "needs CAP_SYS_ADMIN, which"},
		{Unprivileged{Mapped: true}, "user namespace"},
		{Unprivileged{Mapped: true, Err: failed}, "it failed"},
	} {
		if got := c.u.Error(); !strings.Contains(got, c.want) || !strings.Contains(c.u.Hint(), "sudo") {
			t.Errorf("%q, %q; want %q", got, c.u.Hint(), c.want)
		}
	}
	for text, want := range map[string]bool{"         0          0 4294967295\n": false, "0 100000 65536\n": true, "0 1000 1\n1 100000 65536\n": true} {
		name := filepath.Join(t.TempDir(), "uid_map")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := userNamespace(name); got != want {
			t.Errorf("%q: a user namespace: %v", text, got)
		}
	}
}
