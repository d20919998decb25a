// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
)

const (
	nodesUse  = " REF (--node N… | --label K=V… | --set S | --all)"
	holdsHelp = "The hold lasts until 'caisson forward', or --until: whatever is published meanwhile, the nodes keep what\n" +
		"they have. Its signatures are renewed like those of all others, also for a new epoch."
)

func (a *app) freezeCommand() *cobra.Command {
	return a.holdCommand(holdVerb{
		use:     "freeze" + nodesUse + " --reason R --key KEY",
		short:   "Freeze nodes at their content",
		long:    "Nothing changes for the nodes now. " + holdsHelp,
		example: "  caisson freeze registry.example.org:5000/metal-a --site site.yaml --node superhost --reason 'disk on order' --until 7d --key keys/operator.key",
		begins:  true,
		run:     (*publish.Publisher).Freeze,
	})
}

func (a *app) pinCommand() *cobra.Command {
	var layer string
	return a.holdCommand(holdVerb{
		use:   "pin" + nodesUse + " --layer DIGEST --reason R --key KEY",
		short: "Pin nodes to a layer",
		long: "The rest of their overlays stays as it is. It is a newer generation that names another layer: nodes accept\n" +
			"it, while an old overlay itself stays refused as a replay. " + holdsHelp,
		example: "  caisson pin registry.example.org:5000/metal-a --site site.yaml --node superhost --layer sha256:… --reason '6.12.41 hangs' --key keys/operator.key",
		begins:  true,
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&layer, "layer", "", "the `DIGEST` of the layer's index or manifest, or a tag")
		},
		check: func() error {
			if layer == "" {
				return cli.Usage("caisson prune REF --dry-run lists the layers", "no layer to pin: give --layer")
			}
			return nil
		},
		run: func(p *publish.Publisher, ctx context.Context, h publish.Hold) (*publish.Result, error) {
			return p.Pin(ctx, h, layer)
		},
	})
}

func (a *app) rollbackCommand() *cobra.Command {
	var to string
	var oldSecrets bool
	return a.holdCommand(holdVerb{
		use:   "rollback" + nodesUse + " [--to GEN] --reason R --key KEY",
		short: "Roll nodes back to their previous content, and hold them there",
		long: "Each gets the overlay and the layer that it had before the present ones, or that of the generation --to, as a\n" +
			"newer generation. It stays bound to the machine that it is bound to now. Secrets that would become\n" +
			"older ones are named, and need --old-secrets. " + holdsHelp,
		example: "  caisson rollback registry.example.org:5000/metal-a --site site.yaml --all --to 41 --reason 'mounts fail' --key keys/operator.key",
		begins:  true,
		sealed:  true,
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&oldSecrets, "old-secrets", false, "also where secrets become older, or were sealed to a recipient that a node had before")
			f.StringVar(&to, "to", "", "the generation `GEN`, as 'caisson history' lists them")
		},
		run: func(p *publish.Publisher, ctx context.Context, h publish.Hold) (*publish.Result, error) {
			h.OldSecrets = oldSecrets
			return p.Rollback(ctx, h, to)
		},
	})
}

func (a *app) forwardCommand() *cobra.Command {
	return a.holdCommand(holdVerb{
		use:     "forward" + nodesUse + " --key KEY",
		short:   "End a pin, freeze or rollback of nodes",
		long:    "The next 'caisson publish' gives them what the site says. A pause goes on until 'caisson resume'.",
		example: "  caisson forward registry.example.org:5000/metal-a --site site.yaml --all --key keys/operator.key",
		run:     (*publish.Publisher).Forward,
	})
}

func (a *app) pauseCommand() *cobra.Command {
	return a.holdCommand(holdVerb{
		use:   "pause" + nodesUse + " --reason R --key KEY",
		short: "Pause nodes: no changes and no enforcement",
		long: "For work on the machine: the node changes nothing on it, and continues to check and to report what differs.\n" +
			"What is published meanwhile waits until 'caisson resume', or --until, when the node enforces again by itself.",
		example: "  caisson pause registry.example.org:5000/metal-a --site site.yaml --node superhost --reason 'looking at a fan' --until 2h --key keys/operator.key",
		begins:  true,
		run:     (*publish.Publisher).Pause,
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.holdCommand(holdVerb{
		use:     "resume" + nodesUse + " --key KEY",
		short:   "End a pause of nodes",
		long:    "They enforce again what they have. The next 'caisson publish' gives them what the site says, unless they are held.",
		example: "  caisson resume registry.example.org:5000/metal-a --site site.yaml --node superhost --key keys/operator.key",
		run:     (*publish.Publisher).Resume,
	})
}
