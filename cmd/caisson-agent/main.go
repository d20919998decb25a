// SPDX-License-Identifier: Apache-2.0

// Command caisson-agent is the node's side: /init of the loader, then a systemd
// service, and a few verbs for the person who is logged in. A file has a verb, or
// some of one subject.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/initramfs"
	"github.com/caisson-os/caisson/bootagent/fetch"
	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// version and built are set by the Makefile. The clock of a node is never
// earlier than built.
var (
	version = "development"
	built   = "2026-01-01T00:00:00Z"
)

type verb struct {
	name, short string
	run         func(ctx context.Context, a *app, args []string) error
}

// verbs is the command line, in the order of the help text.
func verbs() []verb {
	return []verb{
		{"run", "apply, then follow the fleet (the systemd service)", flagless("run", runService)},
		{"apply", "fetch, verify and apply once", apply},
		{"enroll", "make this host a node of a fleet", enrollHost},
		{"plan", "print what apply would change", plan},
		{"status", "print the state of this node", status},
		{"why", "print problems, what the node did about each, and what to do", flagless("why", why)},
		{"report", "print the report that this node sends", flagless("report", printReport)},
		{"sync", "fetch a newer generation now", syncNow},
		{"confirm", "confirm a change, which is undone otherwise", flagless("confirm", confirm)},
		{"rollback", "roll back to the previous generation, and hold it", rollback},
		{"pin", "go to a kept generation GEN, and hold it", pin},
		{"freeze", "hold the present generation until forward", freeze},
		{"forward", "follow the fleet again", forward},
		{"pause", "change nothing until resume; check and report only", pause},
		{"resume", "end a pause of this node", flagless("resume", resume)},
		{"clear", "end the quarantine of KIND:KEY, of a KIND, or of all settings", clearQuarantine},
		{"operation", "list operations; run NAME now, or rerun NAME in its window", operationVerb},
		{"service", "list services from git; freeze NAME, rollback NAME or forward NAME", serviceVerb},
		{"recipient", "print what secrets are sealed to for this node; rotate makes its next key", recipientVerb},
		{"quote", "have this machine's TPM say what it has booted", quote},
		{"windows", "print the maintenance windows of this node", flagless("windows", windows)},
		{"reboot", "reboot this node, by a soft-reboot where that is enough", flagless("reboot", reboot)},
		{"install", "install the loader on a disk, to boot from it", install},
		{"restore", "restore all originals from the journal (--all)", restore},
		{"version", "print the version", flagless("version", printVersion)},
	}
}

func main() {
	if os.Getpid() == 1 && filepath.Base(os.Args[0]) == "init" || len(os.Args) == 2 && os.Args[1] == "init" && os.Getpid() == 1 {
		initramfs.Boot(buildTime(), version, fetch.Hint)
	}
	os.Exit(run(""))
}

// run does what the command line says, with root before each path, and returns the exit
// code. A signal ends it in order.
func run(root string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := cli.NewOutput(os.Stdout)
	a := &app{out: out, err: os.Stderr, root: root}
	err := out.Conclude(dispatch(ctx, a, os.Args[1:]))
	if err != nil && ctx.Err() != nil {
		err = cli.Interrupted(err)
	}
	return a.report(err)
}

// report prints how a verb ended and returns the exit code.
func (a *app) report(err error) int {
	if a.format == "json" {
		return cli.ReportJSON(a.err, err)
	}
	return cli.Report(a.err, "caisson-agent", err)
}

// heap is the size, in bytes, that the collector keeps the agent's memory near: the budget
// of docs/design.md less what the program itself takes. What is alive may exceed
// it; the collector then works harder.
const heap = 12 << 20

func dispatch(ctx context.Context, a *app, args []string) error {
	debug.SetMemoryLimit(heap)
	for _, c := range called {
		if len(args) == 1+c.args && args[0] == c.word {
			return c.run(ctx, a, args[1:])
		}
	}
	if len(args) == 2 && args[0] == "help" {
		args = []string{args[1], "--help"}
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		help(a.out)
		return nil
	}
	if args[0] == "--version" {
		args[0] = "version"
	}
	if args[0] == "init" {
		return cli.Usage("it is /init of the loader, see 'caisson netboot'", "init runs only as process 1")
	}
	for _, v := range verbs() {
		if v.name == args[0] {
			return a.timed(ctx, v, args[1:])
		}
	}
	return cli.UnknownVerb("caisson-agent", args[0], func(yield func(string) bool) {
		for _, v := range verbs() {
			yield(v.name)
		}
	})
}

// timed runs a verb, and says how long it took where that is asked for.
func (a *app) timed(ctx context.Context, v verb, args []string) error {
	began := time.Now()
	err := fault.But(v.run(ctx, a, args), flag.ErrHelp)
	if a.detail {
		a.say("%s took %s", v.name, time.Since(began).Round(time.Millisecond))
	}
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return cli.WithHint(err, "run it as root")
	}
	return err
}

// called are the words that programs start the agent with, and how many arguments follow: a
// service of ours; what asks the registry, see package fetch; the units caisson-early, -remote,
// -deadline, -deadline-early and -judged; sshd, and a key that it printed or the console, see
// package rescue/letin; the unit caisson-swap.
var called = []struct {
	word string
	args int
	run  func(ctx context.Context, a *app, args []string) error
}{
	{process.LaunchVerb, 1, func(_ context.Context, _ *app, args []string) error { return process.Launch(args[0]) }},
	{fetch.Verb, 0, func(ctx context.Context, a *app, _ []string) error { return fetch.Serve(ctx, os.Stdin, a.out, a.err) }},
	{paths.SetEarly, 0, func(ctx context.Context, a *app, _ []string) error {
		return node.SetEarly(ctx, a.options("run"), spec.WhenEarly)
	}},
	{paths.SetRemote, 0, func(ctx context.Context, a *app, _ []string) error {
		return node.SetEarly(ctx, a.options("run"), spec.WhenRemote)
	}},
	{paths.NoteDeadline, 0, func(ctx context.Context, a *app, _ []string) error { return node.NoteDeadline(ctx, a.root) }},
	{paths.DeadlineOver, 1, func(_ context.Context, a *app, args []string) error { return node.DeadlineOver(a.root, args[0]) }},
	{paths.JudgedOver, 0, func(_ context.Context, a *app, _ []string) error { return node.NobodyLooks(a.root) }},
	{paths.RescueKeys, 1, func(_ context.Context, a *app, args []string) error {
		line, err := letin.Offered(a.root, args[0])
		if err == nil {
			cli.Printf(a.out, "%s", line)
		}
		return err
	}},
	{paths.RescueShell, 1, func(ctx context.Context, a *app, args []string) error {
		code, err := letin.Shell(ctx, a.root, args[0])
		if err == nil && code != 0 {
			os.Exit(code)
		}
		return err
	}},
	{paths.StackNext, 0, func(ctx context.Context, a *app, _ []string) error { return node.StackNext(ctx, a.options("run")) }},
}

// app holds what every verb gets.
type app struct {
	out, err io.Writer
	root     string // prefix of every path, for tests
	format   string // "text" or "json"
	quiet    bool   // results and errors only
	detail   bool   // also how long a verb took
}

// show prints the result of a verb: v with -o json, else what text prints.
func (a *app) show(v any, text func()) error {
	if a.format == "json" {
		return cli.JSON(a.out, v)
	}
	text()
	return nil
}

func (a *app) say(format string, args ...any) {
	if !a.quiet {
		cli.Sayf(a.err, "caisson-agent", format, args...)
	}
}

// options are those of an open node; by is the verb, for the records.
func (a *app) options(verb string) session.Options {
	return session.Options{Root: a.root, Build: buildTime(), Version: version, By: who(verb), Fetch: fetch.Open, Post: fetch.Post, Say: a.say,
		Decided: events.DecisionsInto(filepath.Join(a.root, paths.RunDecisions))}
}

// who names the person behind a verb as far as sudo says so.
func who(verb string) string {
	switch user := os.Getenv("SUDO_USER"); {
	case verb == "run":
		return session.Service
	case user != "":
		return user + "/" + verb
	}
	return "root/" + verb
}

func buildTime() time.Time {
	t, _ := time.Parse(time.RFC3339, built) // what cannot be read is the zero time
	return t
}

// flagless returns a verb that has no flags of its own.
func flagless(name string, run func(ctx context.Context, a *app) error) func(ctx context.Context, a *app, args []string) error {
	return func(ctx context.Context, a *app, args []string) error {
		if err := a.parse(newFlags(a, name), args); err != nil {
			return err
		}
		return run(ctx, a)
	}
}

// newFlags returns a verb's flags, with those that all of them have.
func newFlags(a *app, verb string) *cli.Flags {
	f := cli.NewFlags("caisson-agent", verb)
	f.StringVar(&a.format, "o", "text", "output `format`: text or json")
	f.BoolVar(&a.quiet, "q", false, "print results and errors only")
	f.BoolVar(&a.detail, "v", false, "also print the duration")
	return f
}

// parse reads the arguments; a verb takes flags only.
func (a *app) parse(f *cli.Flags, args []string) error {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		helpOf(f, a.out)
		return err // which ends a verb that only printed its help
	case err != nil:
		return err
	case a.quiet && a.detail:
		return cli.Usage("", "give either -q or -v")
	case f.NArg() > 0:
		return cli.Usage("see 'caisson-agent "+f.Name()+" --help'", "unexpected argument %q", f.Arg(0))
	case a.format != "text" && a.format != "json":
		return cli.Usage("one of: text, json", "unknown output format %q", a.format)
	}
	return nil
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// details has, below # and the name of a verb, its help beyond its line in verbs.
//
//go:embed help.txt
var details string

// help is the program's.
func help(w io.Writer) {
	fmt.Fprint(w, "caisson-agent makes this node what its signed overlay says.\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-9s %s\n", v.name, v.short)
	}
	fmt.Fprintf(w, "\nEvery verb has -o json, -q, -v and --help.\n%s\n", cli.Wrap(cli.ExitCodes))
}

// helpOf is a verb's.
func helpOf(f *cli.Flags, w io.Writer) {
	name, _, _ := strings.Cut(f.Name(), " ") // what it takes may follow
	all := verbs()
	v := all[slices.IndexFunc(all, func(v verb) bool { return v.name == name })]
	fmt.Fprintf(w, "Usage: caisson-agent %s [flags]\n\n%s\n", f.Name(), strings.ToUpper(v.short[:1])+v.short[1:]+".")
	if _, text, found := strings.Cut("\n"+details, "\n# "+v.name+"\n"); found {
		text, _, _ = strings.Cut(text, "\n\n")
		fmt.Fprintf(w, "\n%s\n", cli.Wrap(strings.TrimSuffix(text, "\n")))
	}
	f.Describe(w)
}
