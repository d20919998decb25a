// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/spec"
)

// nobody is a user who owns nothing.
const nobody = 65534

// looking are the verbs that only look: who may run them as root, by sudo, changes
// nothing.
var looking = [][]string{
	{"status"}, {"status", "--trace"}, {"why"}, {"report"}, {"windows"}, {"operation", "list"}, {"service", "list"}, {"recipient"}, {"quote", "--nonce", "000102030405060708090a0b0c0d0e0f"}, {"version"},
	{"plan"},
}

// acting are all others.
var acting = [][]string{
	{"run"}, {"apply"}, {"enroll", "--from", "oci:out", "--fleet", "metal", "--key", "keys/operator.pub", "--node", "host"}, {"sync"}, {"sync", "--wipe"}, {"confirm"},
	{"rollback"}, {"pin", "1"}, {"freeze"}, {"forward"}, {"pause"}, {"resume"}, {"clear"}, {"operation", "run", "disks/mark"}, {"operation", "rerun", "disks/mark"},
	{"service", "freeze", "x"}, {"service", "rollback", "x"}, {"service", "forward", "x"}, {"recipient", "rotate"}, {"reboot"}, {"install", "--disk", "/dev/none", "--yes"}, {"restore", "--all"},
}

// TestEveryVerbLooksOrActs: a new verb belongs in one of the tables.
func TestEveryVerbLooksOrActs(t *testing.T) {
	named := map[string]bool{}
	for _, args := range slices.Concat(looking, acting) {
		named[args[0]] = true
	}
	for _, v := range verbs() {
		if !named[v.name] {
			t.Errorf("%s: does it look or act?", v.name)
		}
		delete(named, v.name)
	}
	for name := range named {
		t.Errorf("there is not any verb %s", name)
	}
}

// readOnly holds all verbs to what a user without rights may do, on the host of a script.
func readOnly(ts *testscript.TestScript, _ bool, _ []string) {
	if os.Geteuid() != 0 {
		return // the script needs nothing else of root
	}
	agent := filepath.Join(ts.Getenv("WORK"), "bin", "caisson-agent")
	program, err := os.ReadFile("/proc/self/exe")
	ts.Check(errors.Join(err, os.MkdirAll(filepath.Dir(agent), 0o755), os.WriteFile(agent, program, 0o755)))
	for dir := filepath.Dir(agent); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // a temporary directory is closed to others
		ts.Check(os.Chmod(dir, 0o755))
	}
	run := func(uid uint32, args []string) (code int, said string) {
		var out bytes.Buffer
		cmd := exec.Command(agent, args...)
		cmd.Dir, cmd.Env = ts.Getenv("WORK"), []string{"ROOT=" + ts.Getenv("ROOT"), "PATH=" + ts.Getenv("PATH")}
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			ts.Check(err)
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
	before := everything(ts)
	for _, args := range slices.Concat(looking, acting) {
		code, said := run(nobody, args)
		if args[0] == "version" {
			if code != 0 {
				ts.Fatalf("version as nobody: exit code %d: %s", code, said)
			}
			continue
		}
		if code != 1 || !strings.Contains(said, "permission denied") || !strings.Contains(said, "run it as root") {
			ts.Fatalf("%s as nobody: exit code %d: %s", args, code, said)
		}
	}
	for _, args := range looking {
		code, said := run(0, args)
		if args[0] == "quote" && code == 1 && strings.Contains(said, tpm.ErrNone.Error()) {
			continue // the host of a script has none
		}
		if code != 0 && code != 3 {
			ts.Fatalf("%s: exit code %d: %s", args, code, said)
		}
	}
	if diff := cmp.Diff(before, everything(ts)); diff != "" {
		ts.Fatalf("something has changed (-before +after):\n%s", diff)
	}
	metrics, err := os.Stat(filepath.Join(ts.Getenv("ROOT"), "run/caisson/metrics.prom"))
	ts.Check(err)
	if metrics.Mode().Perm()&0o004 == 0 {
		ts.Fatalf("metrics are closed to others: %v", metrics.Mode())
	}
}

// everything is each file of the host: its mode, and a digest of its content.
func everything(ts *testscript.TestScript) map[string]string {
	all := map[string]string{}
	ts.Check(filepath.WalkDir(ts.Getenv("ROOT"), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			all[name] = fmt.Sprintf("%v %v", info.Mode(), info.ModTime())
			return err
		}
		data, err := os.ReadFile(name)
		all[name] = fmt.Sprintf("%v %v %x", info.Mode(), info.ModTime(), sha256.Sum256(data))
		return err
	}))
	return all
}

// TestFileNamesSteerNoTerminal: users of the node choose names of files, and
// status and plan print them.
func TestFileNamesSteerNoTerminal(t *testing.T) {
	const forged = "/srv/x\x1b[2J\r\nhealth      ok\u202e"
	var out strings.Builder
	a := &app{out: &out, err: &out}
	st := &spec.Status{Node: "n", Drift: []spec.Drift{{Item: "perm", Key: forged, From: forged, To: forged, Action: "change"}, {Item: "perm", Key: forged, Reason: forged}}, Foreign: []string{forged}, SyncDetail: forged}
	if err := a.showStatus(st); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\r\u202e") {
		t.Errorf("it steers: %q", out.String())
	}
	if n := strings.Count(out.String(), "\nhealth"); n != 1 {
		t.Errorf("%d lines say what the health is:\n%s", n, out.String())
	}
}
