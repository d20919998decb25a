// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules are Divingbell's: each is a pod that starts /tmp/MODULE.sh.
var modules = []string{"apparmor", "apt", "ethtool", "exec", "limits", "mounts", "perm", "sysctl", "uamlite"}

// ActiveError is returned while Divingbell's pods are on the host: what is taken
// over from them they would take back.
type ActiveError struct{ sign string }

func (e *ActiveError) Error() string {
	return "Divingbell still runs on this host: " + e.sign + "; two that set the same things undo each other"
}

// Hint says how it ends.
func (e *ActiveError) Hint() string {
	return "remove its release, for example with helm uninstall divingbell, then do this again; its records stay"
}

// Active returns an [ActiveError] while a pod of Divingbell is on the host: a
// process of one, or a volume that the kubelet keeps mounted for one whose process
// waits to be started again. proc is /proc.
func Active(proc string) error {
	table, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && ofPod(fields[4]) {
			return &ActiveError{fields[4] + " is mounted"}
		}
	}
	own, err := os.Readlink(filepath.Join(proc, "self/ns/mnt"))
	if err != nil {
		return nil // no process here is in a container
	}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	for _, dir := range processes {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it ended
		}
		script := started(line)
		if script == "" {
			continue
		}
		if ns, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && ns != own {
			return &ActiveError{fmt.Sprintf("process %s of a container runs %s", filepath.Base(dir), script)}
		}
	}
	return nil
}

// ofPod reports whether the kubelet mounted a volume there for one of Divingbell's.
func ofPod(target string) bool {
	for _, kind := range []string{"secret", "configmap"} {
		if strings.Contains(target, "/kubernetes.io~"+kind+"/divingbell-") {
			return true
		}
	}
	return false
}

// started returns the script of Divingbell's that a command line starts, "" for
// all others.
func started(cmdline []byte) string {
	args := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	for _, arg := range args[:min(2, len(args))] { // itself, or bash and it
		name, ok := strings.CutPrefix(string(arg), "/tmp/")
		if module, sh := strings.CutSuffix(name, ".sh"); ok && sh && slices.Contains(modules, module) {
			return string(arg)
		}
	}
	return ""
}
