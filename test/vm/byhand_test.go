// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongPictureByHand compares a picture of a node with what an administrator's tools list there.
func TestLongPictureByHand(t *testing.T) {
	require.Long(t)
	f := fleet(t, leanSite...)
	program := filepath.Join(f.Dir, "picture.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "github.com/caisson-os/caisson/sandbox/picture").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := f.login(t, f.boot(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"}))
	in, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // only read
	if _, err := s.Send(t.Context(), "cat >/dev/shm/picture.test && chmod 755 /dev/shm/picture.test", in); err != nil {
		t.Fatal(err)
	}
	said := run(t, s, "sudo env CAISSON_PICTURE_WHOLE=1 /dev/shm/picture.test -test.run '^TestByHand$' -test.v 2>&1 || true")
	if t.Logf("%s", said); !strings.Contains(said, "--- PASS: TestByHand") {
		t.Error("a picture differs from what is listed by hand")
	}
}
