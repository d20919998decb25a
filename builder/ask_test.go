// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

// A program that does not answer has not consented, and does not hold the cache for ever.
func TestAskingEnds(t *testing.T) {
	require.Root(t)
	require.Tool(t, "busybox")
	busybox, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"bin/sh": string(busybox), "usr/sbin/visudo": "#!/bin/sh\nwhile :; do :; done\n"} {
		at := filepath.Join(dir, "tree", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"dev", "proc", "run", "sys", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, "tree", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &build{tmp: t.TempDir(), done: map[string]made{stepBase: {dir: dir}}, patience: time.Second,
		options: Options{Written: [][]Text{{{Path: "/etc/sudoers.d/ops", Content: "x"}}}}}
	if err := b.ask(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "visudo about /etc/sudoers.d/ops") {
		t.Errorf("%v", err)
	}
}
