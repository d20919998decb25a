// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/test/require"
)

// TestMain makes the agent a command of the scripts, with $ROOT before each of
// its paths.
func TestMain(m *testing.M) {
	testscript.Main(withPrograms{m}, map[string]func(){
		"caisson-agent": func() {
			code := run(os.Getenv("ROOT"))
			if name := os.Getenv("PEAK"); name != "" {
				notePeak(name)
			}
			os.Exit(code)
		},
		"change-by-hand": func() {
			found, err := changeByHand()
			data, _ := json.Marshal(found) // numbers
			fmt.Printf("found: %s\n", data)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script")
}

// TestScriptsOfRoot are those that give files away.
func TestScriptsOfRoot(t *testing.T) {
	require.Root(t)
	t.Parallel()
	runScripts(t, "testdata/root")
}

func runScripts(t *testing.T, dir string) {
	t.Helper()
	bin := t.TempDir() // without the agent, which is a command of the scripts
	if err := os.Symlink(programs(t)+"/caisson", bin+"/caisson"); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Setenv("ROOT", filepath.Join(e.WorkDir, "root"))
			for name, text := range map[string]string{
				"etc/machine-id":          "0123456789abcdef0123456789abcdef\n",
				"etc/security/limits.d/":  "",
				"dev/":                    "",
				"proc/self/mountinfo":     "",
				"proc/sys/vm/swappiness":  "60\n",
				"proc/sys/kernel/panic":   "0\n",
				"proc/sys/vm/dirty_ratio": "20\n",
			} {
				path := filepath.Join(e.WorkDir, "root", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if text == "" && name[len(name)-1] == '/' {
					if err := os.MkdirAll(path, 0o755); err != nil {
						return err
					}
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// damage FILE alters a byte in its middle.
			"damage": func(ts *testscript.TestScript, _ bool, args []string) {
				data, err := os.ReadFile(ts.MkAbs(args[0]))
				ts.Check(err)
				data[len(data)/2] ^= 1
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
			},
			// read-only has each verb called by somebody without rights, see looking.
			"read-only": readOnly,
			// replace FILE FROM TO edits a file; a text that is not there fails.
			"replace": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 3 {
					ts.Fatalf("usage: replace FILE FROM TO")
				}
				ts.Check(replace(ts.MkAbs(args[0]), args[1], args[2]))
			},
		},
	})
}

func replace(file, from, to string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(data), from)
	if !ok {
		return fmt.Errorf("%s has no %q", file, from)
	}
	return os.WriteFile(file, []byte(before+to+after), 0o644)
}
