// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// fake is a directory that holds files as /proc/sys does.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for key, value := range files {
		name := filepath.Join(root, key)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func snapshot(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s=%q\n", strings.TrimPrefix(path, root), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestConformance(t *testing.T) {
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		root := fake(t, map[string]string{
			"vm/swappiness":                      "60",
			"net/ipv4/tcp_rmem":                  "4096\t131072\t6291456",
			"net/ipv4/ip_local_reserved_ports":   "",
			"net/ipv4/conf/eth0.100/forwarding":  "0",
			"net/ipv4/conf/all/forwarding":       "0",
			"net/ipv4/ip_forward":                "0",
			"net/ipv4/conf/all/accept_redirects": "1",
		})
		want := []spec.Sysctl{
			{Key: "vm/swappiness", Value: "10"},
			{Key: "net/ipv4/tcp_rmem", Value: "4096 131072 8388608"},
			{Key: "net/ipv4/ip_local_reserved_ports", Value: "8080,9000-9010"},
			{Key: "net/ipv4/conf/all/forwarding", Value: "1"},
			{Key: "net/absent", Value: "1", Optional: true},
		}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, root, j) },
			Empty:    func(j item.Journal) item.Item { return New(nil, root, j) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}
