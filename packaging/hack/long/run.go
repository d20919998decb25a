// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// run runs tests, a package after another, and goes on after one that fails.
func run(ctx context.Context, module string, tests []test, r *record) error {
	byPackage := map[string][]test{}
	for _, t := range tests {
		byPackage[t.dir] = append(byPackage[t.dir], t)
	}
	var failed error
	for _, dir := range slices.Sorted(maps.Keys(byPackage)) {
		of := byPackage[dir]
		if i := slices.IndexFunc(of, func(t test) bool { return t.name == fuzz }); i >= 0 {
			failed = errors.Join(failed, runFuzz(ctx, of[i], r))
			of = slices.Delete(slices.Clone(of), i, i+1)
		}
		if len(of) > 0 {
			failed = errors.Join(failed, runPackage(ctx, module, dir, of, r))
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// event is one of go test -json, see go doc cmd/test2json.
type event struct {
	Action, Test, Output string
	Elapsed              float64 // in seconds
}

// runPackage runs the tests of a package by one go test, so that those which are parallel are.
func runPackage(ctx context.Context, module, dir string, tests []test, r *record) error {
	waiting := map[string]test{}
	for _, t := range tests {
		waiting[t.name] = t
	}
	names := slices.Sorted(maps.Keys(waiting))
	rel, err := filepath.Rel(module, dir)
	if err != nil {
		return err
	}
	cmd := command(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout=8h", "-run", "^("+strings.Join(names, "|")+")$", "./"+rel)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var failed error
	events := json.NewDecoder(out)
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			if !errors.Is(err, io.EOF) {
				failed = errors.Join(failed, fmt.Errorf("%s: read what go test prints: %w", dir, err))
			}
			break
		}
		fmt.Print(e.Output)
		t, ok := waiting[e.Test]
		if !ok || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		delete(waiting, e.Test)
		failed = errors.Join(failed, r.add(t, e.Action, e.Elapsed))
		if e.Action == "fail" {
			failed = errors.Join(failed, fmt.Errorf("%s failed", t))
		}
	}
	_, errRead := io.Copy(io.Discard, out)
	failed = errors.Join(failed, errRead, cmd.Wait())
	for _, name := range slices.Sorted(maps.Keys(waiting)) { // the package did not compile, or its run was cut off
		failed = errors.Join(failed, r.add(waiting[name], "none", 0), fmt.Errorf("%s has no result", waiting[name]))
	}
	return failed
}

func runFuzz(ctx context.Context, t test, r *record) error {
	start := time.Now()
	cmd := command(ctx, "packaging/hack/fuzz", "30s")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	result := "pass"
	if err != nil {
		result, err = "fail", fmt.Errorf("%s: %w", t, err)
	}
	return errors.Join(err, r.add(t, result, time.Since(start).Seconds()))
}

// command is ended softly: what a test started in the background goes with it.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	return cmd
}
