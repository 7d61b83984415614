// Completion scripts for shells, made from the declared verbs and options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace regen::cli {

// One option of a verb with all its spellings, and the words that may follow it.
struct CompletionOption {
  std::vector<std::string> spellings;  // "-o", "--output"
  std::string description;
  std::vector<std::string> values;  // empty: a file if `takes_value`
  bool takes_value = false;
};

struct CompletionVerb {
  std::string name;
  std::string description;
  std::vector<CompletionOption> options;
  bool takes_graph = false;        // a graph may stand as an argument, so zoo:NAME is offered
  std::vector<std::string> words;  // what else may stand as an argument
};

std::vector<CompletionVerb> completion_verbs(const CLI::App& app);

std::string bash_completion(const std::vector<CompletionVerb>& verbs);
std::string zsh_completion(const std::vector<CompletionVerb>& verbs);
std::string fish_completion(const std::vector<CompletionVerb>& verbs);

// zoo:NAME for every model of the zoo.
std::vector<std::string> zoo_words();

}  // namespace regen::cli
