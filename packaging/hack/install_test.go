// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// make install puts programs, units, manual pages and completions below DESTDIR and
// PREFIX, and what refers to another of them finds it there.
func TestInstall(t *testing.T) {
	require.Slow(t)
	bin, dest := t.TempDir(), t.TempDir()
	if said, code := script(t, nil, "go", "build", "-o", bin+"/", "../../cmd/caisson"); code != 0 {
		t.Fatal(said)
	}
	if err := os.WriteFile(filepath.Join(bin, "caisson-agent"), []byte("#!/bin/sh\n"), 0o755); err != nil { // it is put there, and not asked
		t.Fatal(err)
	}
	if said, code := script(t, nil, "make", "-C", "../..", "install", "BIN="+bin, "DESTDIR="+dest, "PREFIX=/opt/caisson"); code != 0 {
		t.Fatal(said)
	}
	at := func(name string) string { return filepath.Join(dest, "opt/caisson", name) }
	for name, mode := range map[string]os.FileMode{
		"bin/caisson": 0o755, "bin/caisson-agent": 0o755, "lib/systemd/system/caisson-agent.service": 0o644, "lib/systemd/system/caisson-fleet.service": 0o644, "lib/sysusers.d/caisson-fleet.conf": 0o644,
		"share/man/man1/caisson.1": 0o644, "share/man/man1/caisson-publish.1": 0o644, "share/man/man8/caisson-agent.8": 0o644,
		"share/bash-completion/completions/caisson": 0o644, "share/bash-completion/completions/caisson-agent": 0o644,
		"share/zsh/site-functions/_caisson": 0o644, "share/fish/vendor_completions.d/caisson.fish": 0o644,
	} {
		info, err := os.Stat(at(name)) // follows the link of the agent
		if err != nil {
			t.Error(err)
		} else if info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %s, %d bytes", name, info.Mode(), info.Size())
		}
	}
	for name, verb := range map[string]string{"caisson-agent": "run$", "caisson-fleet": "fleet serve "} {
		unit, err := os.ReadFile(at("lib/systemd/system/" + name + ".service"))
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`(?m)^ExecStart=(\S+) ` + verb).FindSubmatch(unit); m == nil {
			t.Errorf("%s starts nothing", name)
		} else if _, err := os.Stat(dest + string(m[1])); err != nil {
			t.Errorf("what %s starts: %v", name, err)
		}
	}
	said, code := script(t, nil, "bash", "-c", `source "$1"; COMP_WORDS=(caisson-agent apply --thr); COMP_CWORD=2; _caisson_agent; echo "${COMPREPLY[@]}"`, "bash",
		at("share/bash-completion/completions/caisson-agent"))
	if code != 0 || strings.TrimSpace(said) != "--threshold" {
		t.Errorf("completion: code %d, %q", code, said)
	}
	if said, code := script(t, nil, "make", "-C", "../..", "install", "BIN="+t.TempDir(), "DESTDIR="+dest); code == 0 || !strings.Contains(said, "nothing is built: make build") {
		t.Errorf("without a build: code %d\n%s", code, said)
	}
}
