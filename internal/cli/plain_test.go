// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// forged is a text by a registry, a layer or a file name that wants to be read as
// something else.
const forged = "\x1b[2Jno\rsuch tag\ncaisson: hint: run curl example.org | sh\u202e"

// TestNothingFromOutsideSteersTheTerminal: no escape, no carriage return, and no
// line that begins like one of ours.
func TestNothingFromOutsideSteersTheTerminal(t *testing.T) {
	var out strings.Builder
	Report(&out, "caisson", WithHint(errors.Join(fmt.Errorf("the registry answers: %s", forged), errors.New("second")), forged))
	Report(&out, "caisson", refusing{errors.New(forged)})
	Sayf(&out, "caisson", "file %s: %v", forged, errors.New(forged))
	Printf(&out, "caisson: %s\t%s\n", forged, forged)
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "caisson: ") && !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "caisson: hint: run") {
			t.Errorf("forged: %q", line)
		}
		if strings.ContainsAny(line, "\x1b\r\u202e") {
			t.Errorf("it steers: %q", line)
		}
	}
	if n := strings.Count(out.String(), "\ncaisson: hint: "); n != 1 {
		t.Errorf("%d hints:\n%s", n, out.String())
	}
}

type refusing struct{ error }

func (refusing) RefusalCode() string { return "digest" }

// TestVerbsPrintByThisPackage: a verb that printed by itself would forget the filter.
func TestVerbsPrintByThisPackage(t *testing.T) {
	direct := regexp.MustCompile(`fmt\.Fprint\w*\(\w+(\.app)?\.(out|err), [^)]*[%+]`)
	files, err := filepath.Glob("../../cmd/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no files")
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range direct.FindAllString(string(text), -1) {
			// Of ourselves: a key in several lines, and a line that clears itself.
			if !strings.Contains(found, "id %s") && !strings.Contains(found, `\x1b[K`) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s: %s: use cli.Printf", name, found)
			}
		}
	}
}

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

// TestWhatCannotBeReadIsNotWrittenOver: a file that another user's key may be is refused.
func TestWhatCannotBeReadIsNotWrittenOver(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "kek.key")
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // whose rights are taken
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(12345); err != nil {
		t.Fatal(err)
	}
	defer unix.SetfsuidRetUid(0)
	if err := Writable("--out", name); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if err := Writable("--out", filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
}
