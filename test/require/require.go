// SPDX-License-Identifier: Apache-2.0

// Package require makes skips honest. A test that needs something of its
// machine asks here: when the thing is missing the test is skipped and says
// what is missing, unless CAISSON_REQUIRE names it, then the test fails.
//
// CAISSON_REQUIRE is a comma separated list, for example "root,tools,vm", or
// "all". CAISSON_WITHOUT is a list of what is not used though it is there, whatever
// CAISSON_REQUIRE names: "make check" leaves out root, net and slow. Only tests import this
// package.
package require

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Missing skips t for want of a named thing, or fails it where that is required.
func Missing(t testing.TB, thing, why string) {
	t.Helper()
	if isLeftOut(thing) {
		t.Skipf("CAISSON_WITHOUT names %s: %s", thing, why)
	}
	for _, r := range strings.Split(os.Getenv("CAISSON_REQUIRE"), ",") {
		if r == thing || r == "all" {
			t.Fatalf("CAISSON_REQUIRE=%s, but %s", r, why)
		}
	}
	t.Skipf("%s is missing: %s", thing, why)
}

func isLeftOut(thing string) bool {
	return slices.Contains(strings.Split(os.Getenv("CAISSON_WITHOUT"), ","), thing)
}

// Root needs the test to run as root ("root").
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 || isLeftOut("root") {
		Missing(t, "root", "the test does not run as root")
	}
}

// Net says that the test fetches from other machines ("net"). One that finds that they
// cannot be reached says so by [Missing].
func Net(t testing.TB) {
	t.Helper()
	if isLeftOut("net") {
		Missing(t, "net", "the test uses the network")
	}
}

// Slow says that the test cuts or kills something at every moment, waits by the clock, or goes
// through hundreds of sites, nodes or facts: seconds of "make test" that tell little of most
// changes ("slow").
func Slow(t testing.TB) {
	t.Helper()
	if isLeftOut("slow") {
		Missing(t, "slow", "the test takes seconds")
	}
}

// Kube says that the test runs servers of Kubernetes ("kube"). One that finds that they are
// not built says so by [Missing].
func Kube(t testing.TB) {
	t.Helper()
	if isLeftOut("kube") {
		Missing(t, "kube", "the test runs servers of Kubernetes")
	}
}

// Long marks a test that takes minutes by design. Such a test has Long in its
// name: CAISSON_LONG=1 go test -run Long, as "make test-long" has it, runs them.
func Long(t testing.TB) {
	t.Helper()
	if !strings.Contains(t.Name(), "Long") {
		t.Fatalf("%s: a long test has Long in its name, or make test-long does not run it", t.Name())
	}
	if os.Getenv("CAISSON_LONG") == "" {
		t.Skip("long: make test-long runs it")
	}
}

// Tool needs programs on PATH ("tools").
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, "tools", "program "+name+" is not installed")
		}
	}
}
