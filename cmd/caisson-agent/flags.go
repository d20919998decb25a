// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// flags is a verb's flag set with the flags that all of them have.
type flags struct{ *flag.FlagSet }

func newFlags(a *app, verb string) *flags {
	f := &flags{flag.NewFlagSet(verb, flag.ContinueOnError)}
	f.SetOutput(io.Discard)
	f.Usage = func() {} // parse prints the help
	f.StringVar(&a.format, "o", "text", "output `format`: text or json")
	f.BoolVar(&a.quiet, "q", false, "print results and errors only")
	f.BoolVar(&a.detail, "v", false, "also print the duration")
	return f
}

// parse reads the arguments; a verb takes flags only.
func (f *flags) parse(a *app, args []string) error {
	err := f.FlagSet.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.help(a.out)
		return errHelped
	case err != nil:
		return f.wrongFlags(err)
	case a.quiet && a.detail:
		return cli.Usage("", "give either -q or -v")
	case f.NArg() > 0:
		return cli.Usage("see 'caisson-agent "+f.Name()+" --help'", "unexpected argument %q", f.Arg(0))
	case a.format != "text" && a.format != "json":
		return cli.Usage("one of: text, json", "unknown output format %q", a.format)
	}
	return nil
}

// errHelped ends a verb that only printed its help.
var errHelped = errors.New("help was printed")

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// details is the help of a verb beyond its line in verbs.
var details = map[string]string{
	"run": "Applies what is known, tells systemd that the node is ready, looks at the node every minute and asks the\n" +
		"registry about every five. What others changed is corrected. It runs until a signal.",
	"apply": "Asks the registry once, verifies, applies, and prints the status. A change that cannot be made is taken\n" +
		"back: exit code 1. With --from, --fleet and --key a host need not be enrolled; nothing is remembered then.",
	"enroll": "Verifies this host's overlay, and only then writes /etc/caisson/site.json, from which every other verb\n" +
		"knows whom to ask and whom to trust.",
	"plan": "Asks and verifies as apply does, and writes nothing. Exit code 3: there is something to change.",
	"status": "Prints the node's state and since when, what it runs, what it refused and why, what drifts and who did it.\n" +
		"Exit code 3: something drifts; with --watch that is not an error.\n" +
		"With --logs, the last run of one script instead: how it ended, and what it printed.",
	"why": "Prints on one screen what failed, which item and layer, what the kernel said, what the node did about it and what to do\n" +
		"now; where nothing is wrong, what failed last. With -o json all that the black box has.",
	"report": "Prints what the service reports of its last run, to whom, with which key, and how many reports are not yet delivered.",
	"quote": "Prints what the registers of the TPM are, signed by a key that never leaves it over the nonce of who asks, and the logs\n" +
		"that explain them. 'caisson verify-quote' reads what -o json prints.",
	"sync":    "As apply, on a node that knows whom to ask.",
	"confirm": "A generation published with --confirm is undone unless this is called in time.",
	"rollback": "Goes to the newest kept generation before the one that runs, at once or at the next reboot. The registry is not\n" +
		"asked. Rejected generations and those of an old epoch are skipped.",
	"pin": "GEN is one of the last good generations, with the layer that runs or the previous one. See rollback.",
	"freeze": "Newer generations are not applied until forward, or for the time given. Rejected generations\n" +
		"and those of an old epoch are not held.",
	"forward": "Ends freeze, pin and rollback. The service asks within five minutes, sync at once.",
	"pause": "What drifts is reported and stays, and newer generations wait, until resume or for the time given. A root that\n" +
		"boots meanwhile is configured once.",
	"resume": "A pause of the fleet goes on: 'caisson resume' ends that.",
	"clear": "A setting that was corrected too often, by default five times within ten minutes, is quarantined: it is reported\n" +
		"and left alone. After clear it is corrected again, and its corrections are counted from zero.",
	"recipient": "Secrets are sealed to it once 'caisson secrets accept' has it. rotate makes another key beside the present one,\n" +
		"and status and reports have its recipient from then on. Both open secrets until a generation that is sealed to the\n" +
		"new one has proved itself, and none is sealed to the other that this node goes back to by itself; then that is removed.",
	"reboot": "Where only another layer waits, its kernel is the one that runs, and systemd is of release 254 or newer on both, the\n" +
		"kernel keeps running and only userspace restarts. It says which way it takes, and why.",
	"restore": "Puts back every original that the journal knows. A running service would apply the overlay again: stop it first.",
}

// help is the program's.
func help(w io.Writer) {
	fmt.Fprint(w, "caisson-agent makes this node what its signed overlay says.\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-9s %s\n", v.name, v.short)
	}
	fmt.Fprintf(w, "\nEvery verb has -o json, -q, -v and --help.\n%s\n", cli.Wrap(cli.ExitCodes))
}

// help is a verb's.
func (f *flags) help(w io.Writer) {
	name, _, _ := strings.Cut(f.Name(), " ") // what it takes may follow
	all := verbs()
	v := all[slices.IndexFunc(all, func(v verb) bool { return v.name == name })]
	fmt.Fprintf(w, "Usage: caisson-agent %s [flags]\n\n%s\n", f.Name(), strings.ToUpper(v.short[:1])+v.short[1:]+".")
	if text := details[v.name]; text != "" {
		fmt.Fprintf(w, "\n%s\n", cli.Wrap(text))
	}
	fmt.Fprint(w, "\nFlags:\n")
	f.VisitAll(func(g *flag.Flag) {
		kind, usage := flag.UnquoteUsage(g)
		name := "--" + g.Name
		if len(g.Name) == 1 {
			name = "-" + g.Name
		}
		if !slices.Contains([]string{"", "false", "0s"}, g.DefValue) {
			usage += " (default " + g.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-20s %s\n", strings.TrimSpace(name+" "+strings.ToUpper(cmp.Or(kind, ""))), usage)
	})
}

// unknownVerb is the error for what is not a verb.
func unknownVerb(name string) error {
	like := plain.Nearest(name, func(yield func(string) bool) {
		for _, v := range verbs() {
			yield(v.name)
		}
	})
	return cli.Usage(question("caisson-agent "+like, like)+"see 'caisson-agent help'", "unknown verb %q", name)
}

// wrongFlags is the error for arguments that the verb does not take.
func (f *flags) wrongFlags(err error) error {
	like := ""
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		err = errors.New("unknown flag --" + name)
		like = plain.Nearest(name, func(yield func(string) bool) {
			f.VisitAll(func(g *flag.Flag) { yield(g.Name) })
		})
	}
	return cli.Usage(question("--"+like, like)+"see 'caisson-agent "+strings.Fields(f.Name())[0]+" --help'", "%w", err)
}

// question asks whether something was meant, where like was found.
func question(meant, like string) string {
	if like == "" {
		return ""
	}
	return "did you mean '" + meant + "'? "
}
