// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// loaders are packages of the agent that its service never runs: they act in the
// initramfs, which nothing confines. Nobody else may import them but each other.
var loaders = []string{"bootagent/boot/initramfs", "bootagent/boot/kernel"}

// begins is what starts as the one or the other.
const begins = "cmd/caisson-agent"

// TestNoCallOfTheServiceIsDenied: what the service asks of the kernel its unit lets it ask.
// A call that only works where nothing confines it would pass every test of a verb.
func TestNoCallOfTheServiceIsDenied(t *testing.T) {
	require.Tool(t, "systemd-analyze")
	denied := deniedCalls(t)
	if !denied["settimeofday"] || !denied["finitmodule"] || !denied["kexecfileload"] || denied["adjtimex"] || denied["mount"] {
		t.Fatalf("the unit denies %v", denied)
	}
	const module = "github.com/caisson-os/caisson/"
	list, err := os.ReadFile("../../cmd/caisson-agent/deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(list)) {
		name, own := strings.CutPrefix(strings.TrimSpace(line), module)
		if !own {
			continue
		}
		files, err := filepath.Glob("../../" + name + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", name, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range parsed.Imports {
				if to := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), module); slices.Contains(loaders, to) && !slices.Contains(loaders, name) && name != begins {
					t.Errorf("%s imports %s, whose calls the unit denies", file, to)
				}
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				call := callOf(n)
				if call == "" {
					return true
				}
				found++
				if denied[call] && !slices.Contains(loaders, name) {
					t.Errorf("%s asks for %s, which the unit denies", file, call)
				}
				return true
			})
		}
	}
	if found < 100 {
		t.Errorf("%d calls found: where are the others?", found)
	}
}

// callOf is a name of package unix or syscall as that of a system call, "" for other nodes:
// Adjtimex and SYS_ADJTIMEX are both adjtimex.
func callOf(n ast.Node) string {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if from, ok := s.X.(*ast.Ident); !ok || from.Name != "unix" && from.Name != "syscall" {
		return ""
	}
	return bare(strings.TrimPrefix(s.Sel.Name, "SYS_"))
}

func bare(call string) string { return strings.ToLower(strings.ReplaceAll(call, "_", "")) }

// deniedCalls returns what the unit's filter denies.
func deniedCalls(t *testing.T) map[string]bool {
	t.Helper()
	unit, err := Units.ReadFile("caisson-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]bool{}
	for line := range strings.Lines(string(unit)) {
		names, ok := strings.CutPrefix(line, "SystemCallFilter=")
		if !ok {
			continue
		}
		names, no := strings.CutPrefix(names, "~")
		for _, name := range strings.Fields(names) {
			for _, call := range callsOf(t, name) {
				denied[bare(call)] = no
			}
		}
	}
	return denied
}

// callsOf returns the calls of a set, which may have sets, or the call itself.
func callsOf(t *testing.T, name string) []string {
	t.Helper()
	if !strings.HasPrefix(name, "@") {
		return []string{name}
	}
	out, err := exec.Command("systemd-analyze", "syscall-filter", name).Output()
	if err != nil {
		t.Fatalf("systemd-analyze syscall-filter %s: %v", name, err)
	}
	var calls []string
	for line := range strings.Lines(string(out)) {
		member := strings.TrimSpace(line)
		if member != "" && line[0] == ' ' && member[0] != '#' {
			calls = append(calls, callsOf(t, member)...)
		}
	}
	return calls
}
