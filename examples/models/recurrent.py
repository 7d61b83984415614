"""Recurrent networks: classifiers, a tagger, a translator."""

import torch
from torch import nn


class LstmClassifier(nn.Module):
    def __init__(self, vocabulary, width, hidden, layers, classes, bidirectional=False, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=dropout)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, tokens):
        states, _ = self.lstm(self.tokens(tokens))
        return self.head(states.mean(1))


class GruTagger(nn.Module):
    """A label for each token, by a GRU that starts from a learned state."""

    def __init__(self, vocabulary, width, hidden, classes):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.start = nn.Parameter(torch.zeros(1, 1, hidden))
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        start = self.start.expand(-1, tokens.shape[0], -1).contiguous()
        states, last = self.gru(self.tokens(tokens), start)
        return self.head(states + last[0].unsqueeze(1))


class CellLoop(nn.Module):
    """A recurrence written as a Python loop over time."""

    def __init__(self, width, hidden, classes):
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        memory = torch.zeros_like(state)
        for step in range(x.shape[1]):
            state, memory = self.cell(x[:, step], (state, memory))
        return self.head(state)


class Translator(nn.Module):
    """Reads a sentence and writes another of a given length, word by word, each from the last one it chose and from what it attends to
    (Luong's general score, its outcome fed back)."""

    def __init__(self, vocabulary, width, layers, length):
        super().__init__()
        self.length = length
        self.source = nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)
        self.reader = nn.LSTM(width, width, layers, batch_first=True)
        self.writer = nn.ModuleList(nn.LSTMCell(width * (2 if layer == 0 else 1), width) for layer in range(layers))
        self.score = nn.Linear(width, width, bias=False)
        self.merge = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        read, (state, memory) = self.reader(self.source(tokens))
        states = list(zip(state, memory))
        keys = self.score(read)
        word, attended = torch.zeros_like(tokens[:, 0]), torch.zeros_like(read[:, 0])
        written = []
        for _ in range(self.length):
            x = torch.cat([self.target(word), attended], 1)
            for layer, cell in enumerate(self.writer):
                states[layer] = cell(x, states[layer])
                x = states[layer][0]
            weights = (keys @ x.unsqueeze(2)).softmax(1)
            attended = self.merge(torch.cat([(weights * read).sum(1), x], 1)).tanh()
            written.append(self.head(attended))
            word = written[-1].argmax(1)
        return torch.stack(written, 1)
