// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "640": "0640", "0640": "0640", "04755": "4755", "4755": "4755", "01777": "1777", "7777": "7777", "000": "0000",
		"u=rwx,go=rx": "u=rwx,go=rx", "+X": "+X", "u=g": "u=g", "a-s,+t": "a-s,+t", "u+r-w": "u+r-w", "o=": "o=", "u=rwxs,go=u": "u=rwxs,go=u",
	} {
		m, err := ParseMode(text)
		if err != nil || m.String() != want {
			t.Errorf("ParseMode(%q) = %q, %v; want %q", text, m, err, want)
		}
		if again, err := ParseMode(m.String()); err != nil || again.String() != m.String() {
			t.Errorf("the wire form of %q is read as %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"64", "0", "0o640", "0689", "10000", "07777777", "004755", "-1", "+-640", "u", "u=rq", "u=rwx,", ",u=r", "u=gr", "u = r", "g=u,u=o", "u=g,g=o,o=u", strings.Repeat("a+r,", 30) + "a+r"} {
		if m, err := ParseMode(text); err == nil {
			t.Errorf("ParseMode(%q) = %q, no error", text, m)
		}
	}
}

// A symbolic mode means what chmod(1) makes of it, without a umask.
func TestModeIsChmods(t *testing.T) {
	require.Tool(t, "chmod")
	dir := t.TempDir()
	old := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(old) })
	for _, text := range []string{"u=g", "g=u", "go=u", "ug=o", "o=u", "u+x", "+x", "-w", "=r", "a=", "u=", "g=", "o=", "u+s", "g+s", "ug+s", "o+s", "+s", "a-s", "u=s", "+t", "u+t", "o+t", "g+t",
		"o=t", "a=t", "-t", "+X", "u+X", "a-x,a+X", "u=rwX,go=rX", "u-X", "u+r-w", "ug=rw,o=g", "u=rwxs,go=u", "go-w,+X", "0640", "4755", "1777"} {
		m, err := ParseMode(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, from := range []uint32{0, 0o644, 0o755, 0o1777, 0o4750, 0o2604, 0o124, 0o7777} {
			name := filepath.Join(dir, fmt.Sprintf("%s from %o", text, from)) // one that is there may not be for its owner to open
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(name, from); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("chmod", "--", text, name).CombinedOutput(); err != nil {
				t.Fatalf("chmod %s: %v: %s", text, err, out)
			}
			var st unix.Stat_t
			if err := unix.Stat(name, &st); err != nil {
				t.Fatal(err)
			}
			if got, want := m.Apply(from, false), st.Mode&allBits; got != want {
				t.Errorf("%s of %04o is %04o, chmod(1) makes %04o", text, from, got, want)
			}
		}
	}
}

func TestModeOfDirectories(t *testing.T) {
	for text, want := range map[string]uint32{"+X": 0o755, "0755": 0o755, "u=rwx,go=X": 0o711, "a=rX": 0o555} {
		m, err := ParseMode(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Apply(0o644, true); got != want {
			t.Errorf("%s of a directory: %04o, want %04o", text, got, want)
		}
	}
}

func FuzzMode(f *testing.F) {
	for _, text := range []string{"0640", "04755", "u=rwx,go=u", "+X", "ug+s-w=o"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMode(text)
		if err != nil {
			return
		}
		again, err := ParseMode(m.String())
		if err != nil || again.String() != m.String() {
			t.Fatalf("%q is written as %q, which is read as %q: %v", text, m, again, err)
		}
		for _, mode := range []uint32{0, 0o644, 0o7777} {
			if got := m.Apply(mode, true); got > allBits || again.Apply(mode, true) != got || m.Apply(got, true) != got {
				t.Fatalf("%q of %04o is %04o", text, mode, got)
			}
		}
	})
}
