// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/doctext"
)

// parts are the fields by which the loader's types know each other, and decided, by type.
var parts = map[string]string{"machine": "machine", "disk": "stateDisk", "notes": "notes", "ways": "ways", "attempt": "attempt", "prep": "preparer",
	"chooser": "chooser", "help": "help", "choice": "choice"}

// TestThePageShowsTheStages: with CAISSON_UPDATE it writes them there.
func TestThePageShowsTheStages(t *testing.T) {
	want := "\n| stage | what it does | gives |\n|---|---|---|\n"
	for _, s := range stages {
		want += fmt.Sprintf("| %s | %s | %s |\n", s.name, s.does, s.gives)
	}
	if err := doctext.Printed("../../../docs/design.md", "stages", "bootagent/boot/initramfs", want+"\n"); err != nil {
		t.Error(err)
	}
}

// TestAStageThatFailsEndsTheBoot: no later one runs, and the trace and the error name it.
func TestAStageThatFailsEndsTheBoot(t *testing.T) {
	b, ran := newBoot(screen.Console{W: t.Output()}, machine{}, nil), ""
	runs := func(name string, quiet bool, err error) bootStage {
		return bootStage{name: name, quiet: quiet, run: func(*boot, context.Context) error { ran += name + " "; return err }}
	}
	err := b.run(t.Context(), []bootStage{runs("one", false, nil), runs("two", true, nil), runs("three", false, errStartOver), runs("four", false, nil)})
	if !errors.Is(err, errStartOver) || !strings.HasPrefix(err.Error(), "three: ") || ran != "one two three " {
		t.Errorf("%v, ran %s", err, ran)
	}
	if steps := b.trace.Steps(); len(steps) != 2 || steps[0].Name != "one" || steps[1].Result != errStartOver.Error() {
		t.Errorf("%+v", steps)
	}
	if err := b.run(t.Context(), []bootStage{runs("quiet", true, errStartOver)}); err != errStartOver {
		t.Errorf("%v", err)
	}
}

// TestAnAttemptIsCounted: once, of what waits to be proved, and not again behind its kexec.
func TestAnAttemptIsCounted(t *testing.T) {
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := state.Generation{Generation: 2, Overlay: "sha256:02", Layer: "sha256:0a"}
	first, err := folder.Load()
	if err != nil {
		t.Fatal(err)
	}
	first.Staged = &g
	if err := folder.Save(first); err != nil {
		t.Fatal(err)
	}
	a := attempt{say: t.Logf, machine: &machine{}, disk: &stateDisk{folder: folder}}
	for _, row := range []struct {
		words    []string
		enters   state.Generation
		unproven bool
		counted  int
	}{
		{nil, state.Generation{Generation: 1, Overlay: "sha256:01"}, false, 0},
		{nil, g, true, 1},
		{[]string{spec.KexecMarker, kernel.KexecCounted + g.Overlay}, g, true, 1},
		{[]string{spec.KexecMarker, kernel.KexecCounted}, g, true, 2},
	} {
		a.machine.words, a.unproven = row.words, false
		a.begin(row.enters, false)
		s, err := folder.Load()
		if err != nil || a.unproven != row.unproven || s.Staged.Attempts != row.counted {
			t.Errorf("%q enters %d: unproven %v, staged %+v, %v", row.words, row.enters.Generation, a.unproven, s.Staged, err)
		}
	}
}

// source is the package as it stands, by type and method; "" has no type.
type source map[[2]string]*ast.FuncDecl

func readSource(t *testing.T) source {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	s := source{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok && len(f.Recv.List[0].Names) > 0 {
					s[[2]string{star.X.(*ast.Ident).Name, f.Name.Name}] = f
				}
			}
		}
	}
	return s
}

// touched adds to names, which has all that stages give, what a method reads or writes of it, itself
// and by the methods that it calls.
func (s source) touched(method [2]string, names map[string]bool, seen map[[2]string]bool) {
	if method == [2]string{"stateDisk", "opened"} {
		method = [2]string{"notes", "lookBack"} // see newBoot
	}
	f := s[method]
	if f == nil || seen[method] {
		return
	}
	seen[method] = true
	for name, of := range parts {
		if _, given := names[name]; given && of == method[0] {
			names[name] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		var path []string
		for {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				break
			}
			path = append([]string{sel.Sel.Name}, path...)
			n = sel.X
		}
		if root, ok := n.(*ast.Ident); !ok || root.Name != f.Recv.List[0].Names[0].Name {
			return true
		}
		at := method[0]
		if len(path) > 0 && path[len(path)-1] == "machine" {
			names["by another name: "+method[0]+"."+method[1]] = true // what is read of it is not seen here
		}
		for _, name := range path {
			if _, given := names[name]; given && (at == "boot" || at == "machine" || parts[name] != "" || name == "decided") {
				names[name] = true
			}
			if next := parts[name]; next != "" {
				at = next
				continue
			}
			s.touched([2]string{at, name}, names, seen)
			break
		}
		return false
	})
}

// method returns the name of what runs.
func (s bootStage) method() string {
	name := runtime.FuncForPC(reflect.ValueOf(s.run).Pointer()).Name()
	return name[strings.LastIndex(name, ".")+1:]
}

// TestStagesNeedWhatCameBefore: what a stage says that it needs and gives is what it touches, and
// what it needs was given before.
func TestStagesNeedWhatCameBefore(t *testing.T) {
	all := map[string]bool{}
	for _, s := range stages {
		for _, name := range strings.Fields(s.gives) {
			all[name] = false
		}
	}
	code, given := readSource(t), map[string]bool{}
	for _, s := range stages {
		touches := maps.Clone(all)
		code.touched([2]string{"boot", s.method()}, touches, map[[2]string]bool{})
		needs, gives := strings.Fields(s.needs), strings.Fields(s.gives)
		for _, name := range slices.Sorted(maps.Keys(touches)) {
			if says := slices.Contains(needs, name) || slices.Contains(gives, name); says != touches[name] {
				t.Errorf("%s: touches %s: %v, says so: %v", s.name, name, touches[name], says)
			}
		}
		for _, name := range needs {
			if !given[name] {
				t.Errorf("%s: needs %s, which no stage before it gives", s.name, name)
			}
		}
		for _, name := range gives {
			given[name] = true
		}
	}
}
