// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs is where caisson, caisson-agent and this program are.
var programs string

// build makes them of this checkout, which is the current directory.
func build(dir string) error {
	programs = dir
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/caisson", "./cmd/caisson-agent", "./test/peers")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// site is what an author writes for one host, as JSON, which is YAML, too.
func site(w wanted) ([]byte, error) {
	type m = map[string]any
	sysctl, mounts, files, units := m{}, m{}, m{}, m{}
	for _, s := range w.Sysctls {
		sysctl[s.Name] = s.Value
	}
	for n, at := range w.Mounts {
		mounts[fmt.Sprintf("data%d", n)] = m{"mnt_tgt": at.Name, "device": "tmpfs", "type": "tmpfs", "options": at.Value}
	}
	for _, f := range w.Files {
		files[f.Name] = m{"content": f.Value, "mode": "0644"}
	}
	for n, u := range w.Units {
		units[u.Name] = m{"content": u.Value, "state": "enabled", "dropIns": m{"50-site": w.DropIns[n].Value}}
	}
	return json.Marshal(m{"apiVersion": "caisson.dev/v1alpha1", "kind": "Site", "metadata": m{"name": "metal-a"}, "registry": "oci:out",
		"attached": true,
		"nodes":    []m{{"name": "host"}}, "conf": m{"sysctl": sysctl, "mounts": mounts, "files": files, "units": units}})
}

func writeCaisson(w wanted, dir string) error {
	text, err := site(w)
	if err != nil {
		return err
	}
	agent, err := os.ReadFile(filepath.Join(programs, "caisson-agent"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "."}, {"publish", "site.yaml", "--to", "oci:out", "--key", "keys/operator.key"}} {
		cmd := exec.Command(filepath.Join(programs, "caisson"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("caisson %s: %w: %s", args[0], err, out)
		}
		if args[0] == "init" {
			if err := os.WriteFile(filepath.Join(dir, "site.yaml"), text, 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "caisson-agent"), agent, 0o755)
}
